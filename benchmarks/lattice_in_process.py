"""Runs inside a process of its own: measures Lattice's engine on a GGUF file, through ``Engine.submit`` as a frontend does.

``lattice_in_process.py MODEL WORKLOAD`` prints one JSON object.
"""

from __future__ import annotations

import json
import statistics
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import workload as w

from lattice_chat.template_format import create as chat_template
from lattice_core.descriptors import Settings
from lattice_core.engine import Engine, EngineConfig
from lattice_core.types import Delta, Done, Failed, GenerationRequest, SamplingParams
from lattice_gguf.loader import GgufLoader
from lattice_mlx.backend import MlxBackend
from lattice_mlx.plugin import lattice_backends
from lattice_samplers.default_sampler import DefaultSampler


def settings() -> Settings:
    """The backend's defaults, on the CPU."""
    (spec,) = lattice_backends()
    return Settings(own={option.name: option.default for option in spec.options} | {"device": "cpu"})


def start(path: Path) -> Engine:
    """An engine with default bounds and the default sampler."""
    checkpoint = GgufLoader(Settings()).open(path)
    return Engine.start(
        checkpoint=checkpoint,
        backend=lambda: MlxBackend(settings()),
        sampler=lambda: DefaultSampler(Settings()),
        chat_format=lambda vocabulary: chat_template(checkpoint.chat_template, vocabulary, Settings()),
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

    one(workload.short[:16], 4)
    first = w.timed(lambda: one(w.fresh(workload.short), 1))
    whole = w.timed(lambda: one(w.fresh(workload.short), 1 + workload.decode))
    long = w.timed(lambda: one(w.fresh(workload.long), 1))
    answer = w.rates(workload, first, whole, long, lookahead=0)
    answer["tokens"] = one(workload.short[:32], 16)
    answer["device"] = engine.model_info.device
    many([workload.short[:8]] * 2, 2)
    for count in (1, len(workload.streams)):
        prompts = workload.streams[:count]
        seconds = w.timed(lambda prompts=prompts: many([*map(w.fresh, prompts)], workload.stream_decode))  # type: ignore[misc]  # bound by its default
        answer[f"streams_{count}"] = count * workload.stream_decode / statistics.median(seconds)
    return answer


def main() -> None:
    """Measure and print."""
    with start(Path(sys.argv[1])) as engine:
        print(json.dumps(measure(engine, w.load(Path(sys.argv[2])))))


if __name__ == "__main__":
    main()
