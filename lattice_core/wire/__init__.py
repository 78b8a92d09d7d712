"""How a generation request stands in JSON: one reading of it for every frontend.

Owns the syntax, the fields, their limits and the fields that are refused. Knows no transport, no engine and no tokenizer.
"""

from lattice_core.wire.generation_fields import GENERATION_FIELDS, RequestDefaults, read_generation
from lattice_core.wire.json_fields import (
    ConflictingFieldsError,
    get_bool,
    get_int,
    get_number,
    get_object,
    get_text,
    shown,
    wrong_type,
)
from lattice_core.wire.messages import read_messages
from lattice_core.wire.strict_json import JSONSyntaxError, load_json
from lattice_core.wire.unsupported_fields import refuse_unsupported, unknown_fields

__all__ = [
    "GENERATION_FIELDS",
    "ConflictingFieldsError",
    "JSONSyntaxError",
    "RequestDefaults",
    "get_bool",
    "get_int",
    "get_number",
    "get_object",
    "get_text",
    "load_json",
    "read_generation",
    "read_messages",
    "refuse_unsupported",
    "shown",
    "unknown_fields",
    "wrong_type",
]
