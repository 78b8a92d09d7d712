"""Runs inside a process of its own: measures Lattice's engine on a model, through ``Engine.submit`` as a frontend does.

``lattice_in_process.py MODEL [WORKLOAD]`` prints one JSON object: under ``start`` what it took to become ready, and with a
workload the rates as well. Whatever loader knows the model opens it; the backend is ``mlx`` on the CPU with its defaults.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import workload as w

from lattice_core.cli.command_line import Early, Flags
from lattice_core.cli.session import Session
from lattice_core.engine import Engine, EngineConfig
from lattice_core.errors import UnsupportedFeatureError
from lattice_core.plugins import PluginHost, Selection
from lattice_core.types import Delta, Done, Failed, GenerationRequest, SamplingParams
from lattice_samplers.default_sampler import DefaultSampler

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lattice_core.protocols import Checkpoint
    from lattice_core.types import Message, Prompt, TensorData, TensorSpec

_STATUS = Path("/proc/self/status")


class NoChat:
    """A chat format without conversations, and so without a token that ends a turn."""

    stop_ids: frozenset[int] = frozenset()

    def render(self, messages: Sequence[Message], options: Mapping[str, Any]) -> Prompt:
        """Prompts are given as token ids here."""
        raise UnsupportedFeatureError(f"no chat format: {len(messages)} messages, {len(options)} options")


class Endless:
    """A checkpoint that knows no end-of-sequence token; all else is passed through."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self.config = _without_ends(checkpoint.config)
        self.generation_config = _without_ends(checkpoint.generation_config)
        self.tokenizer_config = _without_ends(checkpoint.tokenizer_config)
        self.tokenizer_json = checkpoint.tokenizer_json
        self.chat_template = checkpoint.chat_template
        self.format = checkpoint.format
        self.nbytes = checkpoint.nbytes

    def tensors(self) -> Mapping[str, TensorSpec]:
        """The checkpoint's."""
        return self._checkpoint.tensors()

    def read(self, name: str) -> TensorData:
        """The checkpoint's."""
        return self._checkpoint.read(name)

    def close(self) -> None:
        """Close the checkpoint."""
        self._checkpoint.close()


def _without_ends(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _without_ends(value) if key == "text_config" else value
        for key, value in fields.items()
        if not key.startswith("eos_token")
    }


def start(path: Path) -> Engine:
    """An engine with default bounds and the default sampler, on a model that knows no end-of-sequence token.

    So every generation has the length that was asked for, as the peer's have, which is asked to stop at no token.
    """
    session = Session(PluginHost.load(Selection(third_party=False)), {}, Early())
    session.resolve(Flags({"mlx:device": [("--mlx-device", "cpu")]}))
    _, checkpoint = session.open_checkpoint(str(path))
    return Engine.start(
        checkpoint=Endless(checkpoint),
        backend=lambda: session.make_backend("mlx"),
        sampler=lambda: DefaultSampler(session.settings_for(session.registry.find("sampler", "default").spec)),
        chat_format=lambda _vocabulary: NoChat(),
        config=EngineConfig(model_id="measured"),
    )


def started(engine: Engine) -> dict[str, Any]:
    """What it took: the moment by the clock that all processes share, bytes of weights, the most memory of this process."""
    return {"ready_at": time.monotonic(), "peak_bytes": peak_bytes(), "resident_bytes": engine.model_info.nbytes}


def peak_bytes() -> int:
    """The most memory that this process ever held. Not ``ru_maxrss`` on Linux, which keeps that of the parent."""
    if _STATUS.exists():
        line = next(line for line in _STATUS.read_text(encoding="ascii").splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def measure(engine: Engine, workload: w.Workload) -> dict[str, Any]:
    """The rates that the peer is asked for as well."""

    def one(prompt: list[int], tokens: int) -> list[int]:
        request = GenerationRequest(prompt=tuple(prompt), max_tokens=tokens, sampling=SamplingParams(temperature=0.0))
        made: list[int] = []
        for event in engine.submit(request):
            if isinstance(event, Failed):
                raise event.error
            if isinstance(event, Delta):
                made += event.token_ids
            if isinstance(event, Done) and event.usage.completion_tokens != tokens:
                raise RuntimeError(f"the engine made {event.usage.completion_tokens} tokens in place of {tokens}")
        return made

    def many(prompts: list[list[int]], tokens: int) -> None:
        with ThreadPoolExecutor(len(prompts)) as pool:
            list(pool.map(lambda prompt: one(prompt, tokens), prompts))

    return w.measure(workload, one, many, lookahead=0)


def main() -> None:
    """Start, measure and print."""
    with start(Path(sys.argv[1])) as engine:
        answer: dict[str, Any] = {"start": started(engine), "device": engine.model_info.device}
        if len(sys.argv) > 2:  # noqa: PLR2004  # the workload is the second argument
            answer |= measure(engine, w.load(Path(sys.argv[2])))
        print(json.dumps(answer))


if __name__ == "__main__":
    main()
