"""The frontend ``stdio``: JSON lines over stdin and stdout, and one answer to one prompt."""
