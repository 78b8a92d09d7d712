"""The report for people: lines of text from the mapping that ``--json`` prints. Decides nothing about the model."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_WIDTH = 18
_NAMED = 8
_UNITS = ("B", "kB", "MB", "GB", "TB")
_STEP = 1000
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def model_lines(report: Mapping[str, Any]) -> Iterator[str]:
    """The report of a model."""
    yield from _clean(_model_rows(report))


def adapter_lines(report: Mapping[str, Any]) -> Iterator[str]:
    """The report of an adapter."""
    yield from _clean(_adapter_rows(report))


def size(nbytes: int | None) -> str:
    """``98362432`` as ``98.4 MB``, in decimal units as disks count."""
    if nbytes is None:
        return "unknown size"
    amount, unit = float(nbytes), 0
    while amount >= _STEP and unit < len(_UNITS) - 1:
        amount /= _STEP
        unit += 1
    return f"{amount:.0f} B" if unit == 0 else f"{amount:.3g} {_UNITS[unit]}"


Row = tuple[str, str]


def _clean(rows: Iterator[Row]) -> Iterator[str]:
    for label, text in rows:
        # Names and configurations come from files of strangers; a terminal must not obey them.
        yield _CONTROL.sub("?", f"{label:<{_WIDTH}}{text}".rstrip())


def _model_rows(report: Mapping[str, Any]) -> Iterator[Row]:
    yield "model", str(report["path"])
    yield "format", str(report.get("format", "unknown"))
    config = report.get("config", {})
    declared = ", ".join(config.get("architectures") or [str(config.get("model_type") or "no architecture")])
    if report["described"]:
        yield "architecture", f"{report['architecture']} (configuration: {declared})"
        yield "vocabulary", f"{report['vocab_size']} tokens"
        yield "context", f"{report['context']} tokens"
        yield "activations", str(report["dtype"])
    else:
        yield "architecture", f"configuration: {declared}"
        yield "vocabulary", f"{config.get('vocab_size')} tokens, as the configuration says"
        yield "context", f"{config.get('max_position_embeddings')} tokens, as the configuration says"
    yield from _tensor_rows(report.get("tensors"))
    yield from _memory_rows(report)
    yield from _accounting_rows(report.get("accounting", {}))
    yield from _text_rows(report)
    for line in report["notes"]:
        yield "note", line
    for line in report["problems"]:
        yield "problem", line


def _tensor_rows(tensors: Mapping[str, Any] | None) -> Iterator[Row]:
    if tensors is None:
        return
    yield "tensors", f"{tensors['count']}, {size(tensors['bytes'])} as stored"
    for row in tensors["by_kind"]:
        yield "", f"{row['count']} {row['kind']}: {row['elements']} elements, {size(row['bytes'])}"
    for tensor in tensors.get("each", ()):
        yield "  tensor", f"{tensor['name']} {tensor['shape']} {tensor['kind']}, {size(tensor['bytes'])}"


def _memory_rows(report: Mapping[str, Any]) -> Iterator[Row]:
    memory = report.get("memory")
    if memory is None:
        return
    yield "weights in memory", size(memory["weights"])
    rows, one, every = memory["max_batch"], size(memory["state_one_row"]), size(memory["state_all_rows"])
    yield "state in memory", f"{one} for a row of {report['context']} tokens, {every} for {rows} such rows"
    yield "", f"{size(memory['state_fixed'])} for each row and {size(memory['state_per_token'])} for each token"


def _accounting_rows(accounting: Mapping[str, Sequence[str]]) -> Iterator[Row]:
    for name in ("missing", "unexpected", "misshapen", "skipped"):
        names = accounting.get(name)
        if names:
            more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
            separator = "; " if name == "misshapen" else ", "
            yield name, f"{len(names)}: {separator.join(names[:_NAMED])}{more}"


def _text_rows(report: Mapping[str, Any]) -> Iterator[Row]:
    tokenizer = report.get("tokenizer")
    if tokenizer is not None:
        added = f"{tokenizer['added_tokens']} added, {tokenizer['special_tokens']} of them special"
        yield "tokenizer", f"{tokenizer['kind']}, {tokenizer['size']} tokens, {added}"
    if "eos_ids" in report:
        ends = ", ".join(f"{item['id']} {item['token'] or '(no token)'}" for item in report["eos_ids"])
        yield "end of sequence", ends or "none"
    if "chat_template" in report:
        template = report["chat_template"]
        yield "chat template", "none" if template is None else f"{template['characters']} characters"
    if "generation_config" in report:
        yield (
            "generation config",
            json.dumps(report["generation_config"], default=str) if report["generation_config"] else "none",
        )


def _adapter_rows(report: Mapping[str, Any]) -> Iterator[Row]:
    yield "adapter", str(report["path"])
    yield "format", str(report["format"])
    yield "size", f"{size(report['bytes'])}, {', '.join(report['dtypes'])}"
    kinds = ", ".join(f"{count} {kind}" for kind, count in report["kinds"].items())
    yield "modules", f"{report['modules']}: {kinds}" if kinds else "0"
    yield "rank", ", ".join(map(str, report["ranks"]))
    yield "scale", ", ".join(f"{scale:g}" for scale in report["scales"])
    yield "fingerprint", str(report["fingerprint"])
    for row in report.get("each", ()):
        yield "  module", f"{row['module']} {row['in']} to {row['out']}, rank {row['rank']}, scale {row['scale']:g}"
