"""Reading of model directories that nobody vouches for, for loaders of any format: bounded, strict, regular files only."""

from lattice_core.untrusted_files.bounded_json import load_bounded, read_json, read_object, shown_value
from lattice_core.untrusted_files.model_texts import read_chat_template, read_settings, read_tokenizer
from lattice_core.untrusted_files.regular_file import is_there, open_regular, read_into, read_regular

__all__ = [
    "is_there",
    "load_bounded",
    "open_regular",
    "read_chat_template",
    "read_into",
    "read_json",
    "read_object",
    "read_regular",
    "read_settings",
    "read_tokenizer",
    "shown_value",
]
