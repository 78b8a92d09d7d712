"""What can be said of an opened checkpoint without reading a weight: a mapping that JSON can hold.

Every part is asked on its own, so that a broken tokenizer does not hide the tensors. Knows neither paths nor output.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import define, field

from lattice_core.errors import LatticeError
from lattice_core.tokenizer import Tokenizer
from lattice_inspect.stored_bytes import bytes_of, kind_of, schemes_of, summary_by_kind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lattice_core.protocols import Checkpoint
    from lattice_core.types import ModelDescription, TensorSpec

_CONFIG_FIELDS = ("model_type", "max_position_embeddings", "vocab_size")


@define
class Findings:
    """A report as it grows. ``problems`` are lines about what keeps the model from loading, with the errors behind them."""

    report: dict[str, Any] = field(factory=dict)
    problems: list[str] = field(factory=list)
    errors: list[LatticeError] = field(factory=list)

    def attempt(self, work: Callable[[], dict[str, Any]]) -> None:
        """Add what ``work`` finds; its ``LatticeError`` becomes a problem."""
        try:
            self.report |= work()
        except LatticeError as error:
            self.problems.append(error.message)
            self.errors.append(error)


def report_model(
    checkpoint: Checkpoint, describe: Callable[[], ModelDescription | None], max_batch: int, *, tensors: bool
) -> Findings:
    """All that is known. ``describe`` asks the backend (None where it cannot say); ``tensors`` lists each tensor.

    Raises nothing of Lattice's own tree.
    """
    found = Findings()
    found.attempt(lambda: {"format": checkpoint.format})
    found.attempt(lambda: _config(checkpoint))
    found.attempt(lambda: _tensors(checkpoint, each=tensors))
    found.report["described"] = False
    found.attempt(lambda: _description(describe(), max_batch))
    found.problems += _unfit(found.report)
    found.attempt(lambda: _tokenizer(checkpoint))
    found.attempt(lambda: _text_assets(checkpoint))
    return found


def _config(checkpoint: Checkpoint) -> dict[str, Any]:
    config = checkpoint.config
    nested = config.get("text_config")
    language: Mapping[str, Any] = nested if isinstance(nested, dict) else {}
    fields = {name: config.get(name, language.get(name)) for name in _CONFIG_FIELDS}
    named = config.get("architectures")
    return {"config": {"architectures": list(map(str, named)) if isinstance(named, list | tuple) else [], **fields}}


def _tensors(checkpoint: Checkpoint, *, each: bool) -> dict[str, Any]:
    specs = checkpoint.tensors()
    found = {
        "count": len(specs),
        "bytes": checkpoint.nbytes,
        "by_kind": summary_by_kind(specs.values()),
        "quantization": schemes_of(specs),
    }
    if each:
        found["each"] = [_tensor(spec) for spec in specs.values()]
    return {"tensors": found}


def _tensor(spec: TensorSpec) -> dict[str, Any]:
    return {
        "name": spec.name,
        "kind": kind_of(spec),
        "dtype": spec.dtype,
        "shape": list(spec.shape),
        "bytes": bytes_of(spec),
    }


def _description(description: ModelDescription | None, max_batch: int) -> dict[str, Any]:
    if description is None:
        return {}
    row = description.state_bytes(description.context)
    return {
        "described": True,
        "architecture": description.architecture,
        "vocab_size": description.vocab_size,
        "context": description.context,
        "dtype": description.dtype,
        "memory": {
            "weights": description.weight_bytes,
            "state_fixed": description.state_bytes_fixed,
            "state_per_token": description.state_bytes_per_token,
            "state_one_row": row,
            "max_batch": max_batch,
            "state_all_rows": max_batch * row,
        },
        "accounting": {
            "missing": list(description.missing),
            "unexpected": list(description.unexpected),
            "misshapen": list(description.misshapen),
            "skipped": list(description.skipped),
        },
    }


def _unfit(report: Mapping[str, Any]) -> list[str]:
    """One line for each way in which the tensors do not fit the architecture."""
    accounting = report.get("accounting", {})
    words = {
        "missing": "tensors that the architecture needs are missing",
        "unexpected": "tensors are unknown to the architecture",
        "misshapen": "tensors have another shape than the configuration asks for",
    }
    return [f"{len(accounting[name])} {text}" for name, text in words.items() if accounting.get(name)]


def _tokenizer(checkpoint: Checkpoint) -> dict[str, Any]:
    tokenizer = Tokenizer.from_checkpoint(checkpoint)
    model = tokenizer.document.get("model")
    added = tokenizer.document.get("added_tokens") or []
    return {
        "tokenizer": {
            "kind": model.get("type") if isinstance(model, dict) else None,
            "size": tokenizer.size,
            "added_tokens": len(added),
            "special_tokens": len(tokenizer.special_ids),
            "named": dict(tokenizer.special_tokens),
        },
        "eos_ids": [{"id": token, "token": tokenizer.token(token)} for token in sorted(tokenizer.eos_ids)],
    }


def _text_assets(checkpoint: Checkpoint) -> dict[str, Any]:
    template = checkpoint.chat_template
    return {
        "chat_template": None if template is None else {"characters": len(template)},
        "generation_config": dict(checkpoint.generation_config),
    }
