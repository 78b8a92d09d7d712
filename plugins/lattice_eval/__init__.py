"""The command ``eval``: measures a model's quality, without an engine around it."""
