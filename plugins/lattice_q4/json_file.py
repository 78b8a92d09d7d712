"""JSON files of a copy: indented, in UTF-8. Knows nothing of what they hold."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


def write_json(path: Path, content: Any) -> None:
    """Write ``content`` to a new or existing file."""
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
