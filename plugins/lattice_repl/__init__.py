"""The frontend ``repl``: a conversation at a prompt."""
