"""Runs inside a process of its own: measures Lattice's engine on a GGUF file, through ``Engine.submit`` as a frontend does.

``lattice_in_process.py MODEL WORKLOAD`` prints one JSON object.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import workload as w

from lattice_core.descriptors import Settings
from lattice_core.engine import Engine, EngineConfig
from lattice_core.errors import UnsupportedFeatureError
from lattice_core.types import Delta, Done, Failed, GenerationRequest, SamplingParams
from lattice_gguf.loader import GgufLoader
from lattice_mlx.backend import MlxBackend
from lattice_mlx.plugin import lattice_backends
from lattice_samplers.default_sampler import DefaultSampler

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lattice_core.types import Message, Prompt


class NoChat:
    """A chat format without conversations, and so without a token that ends a turn."""

    stop_ids: frozenset[int] = frozenset()

    def render(self, messages: Sequence[Message], options: Mapping[str, Any]) -> Prompt:
        """Prompts are given as token ids here."""
        raise UnsupportedFeatureError(f"no chat format: {len(messages)} messages, {len(options)} options")


def settings() -> Settings:
    """The backend's defaults, on the CPU."""
    (spec,) = lattice_backends()
    return Settings(own={option.name: option.default for option in spec.options} | {"device": "cpu"})


def start(path: Path) -> Engine:
    """An engine with default bounds and the default sampler, on a model that knows no end-of-sequence token.

    So every generation has the length that was asked for, as the peer's have, which is asked to stop at no token.
    """
    checkpoint = GgufLoader(Settings()).open(path)
    checkpoint.config, checkpoint.generation_config, checkpoint.tokenizer_config = (
        {key: value for key, value in fields.items() if not key.startswith("eos_token")}
        for fields in (checkpoint.config, checkpoint.generation_config, checkpoint.tokenizer_config)
    )
    return Engine.start(
        checkpoint=checkpoint,
        backend=lambda: MlxBackend(settings()),
        sampler=lambda: DefaultSampler(Settings()),
        chat_format=lambda _vocabulary: NoChat(),
        config=EngineConfig(model_id="smollm2"),
    )


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

    answer = w.measure(workload, one, many, lookahead=0)
    answer["device"] = engine.model_info.device
    return answer


def main() -> None:
    """Measure and print."""
    with start(Path(sys.argv[1])) as engine:
        print(json.dumps(measure(engine, w.load(Path(sys.argv[2])))))


if __name__ == "__main__":
    main()
