"""Broken KHQ4 directories, by name: each builder fills a directory and returns what the error must contain.

``BROKEN`` holds all of them. Those in ``FOUND_WHEN_READ`` are opened without error and refused when the tensor is read; for
those in ``FOUND_AFTER_OPENING`` it is the tokenizer or the backend that finds what is wrong.
"""

from tests.q4 import broken_directories, broken_files
from tests.q4.damage import BROKEN, FOUND_AFTER_OPENING, FOUND_WHEN_READ

__all__ = ["BROKEN", "FOUND_AFTER_OPENING", "FOUND_WHEN_READ", "broken_directories", "broken_files"]
