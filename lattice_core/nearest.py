"""The nearest valid name for a misspelt one. Knows nothing of what the names mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def nearest(name: str, choices: Iterable[str]) -> str | None:
    """The choice most like ``name``, or None where none is close."""
    from difflib import get_close_matches  # noqa: PLC0415  # only needed where something is wrong already

    known = list(choices)
    # Swapped letters are the commonest slip, and rank below a longer match otherwise.
    swapped = (choice for choice in known if sorted(choice) == sorted(name.lower()))
    return next(swapped, None) or next(iter(get_close_matches(name.lower(), known, n=1, cutoff=0.6)), None)


def did_you_mean(name: str, choices: Iterable[str]) -> str:
    """`` (did you mean X?)``, or nothing where no choice is close."""
    found = nearest(name, choices)
    return f" (did you mean {found}?)" if found else ""
