"""Broken model directories, by name: each builder fills a directory and returns what the error must contain.

``BROKEN`` holds all of them. Those in ``FOUND_AFTER_OPENING`` are opened without error: the tokenizer or the backend finds
what is wrong with them.
"""

from tests.safetensors import broken_contents, broken_downloads, broken_headers
from tests.safetensors.damage import BROKEN, FOUND_AFTER_OPENING

__all__ = ["BROKEN", "FOUND_AFTER_OPENING", "broken_contents", "broken_downloads", "broken_headers"]
