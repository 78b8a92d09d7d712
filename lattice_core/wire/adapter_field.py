"""The field ``lora`` of a request: which adapter answers it. Knows no engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lattice_core.errors import RequestError, UnsupportedFeatureError
from lattice_core.wire.json_fields import shown, wrong_type

if TYPE_CHECKING:
    from collections.abc import Mapping


def read_adapter(body: Mapping[str, Any]) -> str | None:
    """The adapter's name, an empty text for none at all, or None where the request leaves it to ``model``.

    ``lora`` is an array of at most one object with ``id``, and perhaps ``scale``, which must be 1: an adapter's own scale
    lies in its files. Raises ``RequestError`` or ``UnsupportedFeatureError`` that name the member.
    """
    given = body.get("lora")
    if given is None:
        return None
    if not isinstance(given, list):
        raise wrong_type("lora", given, 'an array such as [{"id": NAME}]')
    if not given:
        return ""
    if len(given) > 1:
        raise UnsupportedFeatureError(f"`lora` names {len(given)} adapters; one per request is supported here", param="lora")
    return _name(given[0])


def _name(entry: Any) -> str:
    if not isinstance(entry, dict):
        raise wrong_type("lora[0]", entry, "an object with the adapter's name as id")
    for member in entry:
        if member not in ("id", "scale"):
            raise UnsupportedFeatureError(f"`lora[0]` holds {shown(member)}; only id and scale are known", param="lora[0]")
    name, scale = entry.get("id"), entry.get("scale")
    if not isinstance(name, str):
        raise wrong_type("lora[0].id", name, "the adapter's name, a string")
    if not name:
        raise RequestError("`lora[0].id` is empty; send an empty array for no adapter", param="lora[0].id")
    if scale is not None and (isinstance(scale, bool) or scale != 1):
        raise UnsupportedFeatureError(f"`lora[0].scale` is {shown(scale)}; only 1 is supported here", param="lora[0].scale")
    return name
