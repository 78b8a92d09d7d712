"""Sizes for people: decimal units, as disks and download pages count."""

from __future__ import annotations

_UNITS = ("B", "kB", "MB", "GB", "TB")


def readable(nbytes: int) -> str:
    """``98362432`` as ``98 MB``; one decimal below ten of a unit."""
    size, unit = float(nbytes), 0
    while round(size) >= 1000 and unit < len(_UNITS) - 1:  # noqa: PLR2004 - a unit holds a thousand of the one before
        size /= 1000
        unit += 1
    decimals = 1 if unit and size < 9.95 else 0  # noqa: PLR2004 - from here on it rounds to 10.0
    return f"{size:.{decimals}f} {_UNITS[unit]}"
