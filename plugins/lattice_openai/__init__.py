"""The frontend ``openai``: an HTTP server that speaks the OpenAI chat API over any engine."""
