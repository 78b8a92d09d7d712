"""The fields that say how to generate: their limits and defaults, the same for every frontend. Knows no engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import evolve, frozen

from lattice_core.errors import RequestError, UnsupportedFeatureError
from lattice_core.types import GenerationRequest, GrammarRequest, SamplingParams
from lattice_core.wire.adapter_field import read_adapter
from lattice_core.wire.json_fields import ConflictingFieldsError, get_int, get_number, get_object, shown, wrong_type

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lattice_core.descriptors import Settings
    from lattice_core.types import Message

MAX_STOPS = 4
MAX_STOP_BYTES = 4096
MAX_STOP_BYTES_TOGETHER = 8192

GENERATION_FIELDS = frozenset(
    {
        "max_tokens",
        "max_completion_tokens",
        "temperature",
        "top_p",
        "top_k",
        "repetition_penalty",
        "seed",
        "stop",
        "response_format",
        "chat_template_kwargs",
        "lora",
    }
)
"""What ``read_generation`` reads."""

_U64 = 2**64
_TOP_K_HIGHEST = 2**31 - 1


@frozen
class RequestDefaults:
    """What a request gets that does not say. ``explicit`` are the core options that the operator set, by name.

    ``max_tokens`` None is the rest of the context.
    """

    max_tokens: int | None
    sampling: SamplingParams
    explicit: frozenset[str] = frozenset()

    @classmethod
    def from_settings(cls, settings: Settings) -> RequestDefaults:
        """The values of the core's options, wherever each came from."""
        core = settings.core
        return cls(
            max_tokens=core["max-tokens"],
            sampling=SamplingParams(
                temperature=core["temperature"],
                top_k=core["top-k"],
                top_p=core["top-p"],
                repetition_penalty=core["repetition-penalty"],
                seed=core["seed"],
            ),
            explicit=frozenset(name for name, source in settings.sources.items() if source != "default"),
        )

    def with_grammar(self) -> RequestDefaults:
        """The defaults of a constrained answer: what the operator set, else no penalty and the rest of the context."""
        changed = self
        if "max-tokens" not in self.explicit:
            # A constrained answer that is cut is broken.
            changed = evolve(changed, max_tokens=None)
        if "repetition-penalty" not in self.explicit:
            # The punctuation of JSON must repeat.
            changed = evolve(changed, sampling=evolve(changed.sampling, repetition_penalty=1.0))
        return changed


def read_generation(
    body: Mapping[str, Any],
    defaults: RequestDefaults,
    *,
    messages: tuple[Message, ...] | None = None,
    prompt: str | None = None,
    model: str | None = None,
) -> GenerationRequest:
    """The request for ``messages`` or ``prompt`` with the generation fields of ``body``.

    With a grammar the defaults are those of ``RequestDefaults.with_grammar``. Raises ``RequestError`` that names the field
    in ``param``.
    """
    limit = _max_tokens(body)
    grammar = _grammar(body)
    if grammar is not None:
        defaults = defaults.with_grammar()
    return GenerationRequest(
        messages=messages,
        prompt=prompt,
        model=model,
        adapter=read_adapter(body),
        max_tokens=defaults.max_tokens if limit is None else limit,
        stop=_stop(body),
        sampling=_sampling(body, defaults.sampling),
        grammar=grammar,
        template_options=get_object(body, "chat_template_kwargs") or {},
    )


def _max_tokens(body: Mapping[str, Any]) -> int | None:
    old = get_int(body, "max_tokens", low=1)
    new = get_int(body, "max_completion_tokens", low=1)
    if old is not None and new is not None and old != new:
        raise ConflictingFieldsError(
            f"`max_tokens` is {shown(old)} and `max_completion_tokens` is {shown(new)}; send one of them",
            param="max_completion_tokens",
        )
    return old if new is None else new


def _sampling(body: Mapping[str, Any], defaults: SamplingParams) -> SamplingParams:
    temperature = get_number(body, "temperature", low=0, high=2)
    top_p = get_number(body, "top_p", low=0, high=1, above=True)
    top_k = get_int(body, "top_k", low=0)
    # Logits are divided by it: a penalty near 0 would take them out of the range of float32.
    penalty = get_number(body, "repetition_penalty", low=0.01, high=100)
    return SamplingParams(
        temperature=defaults.temperature if temperature is None else temperature,
        top_k=defaults.top_k if top_k is None else min(top_k, _TOP_K_HIGHEST),
        top_p=defaults.top_p if top_p is None else top_p,
        repetition_penalty=defaults.repetition_penalty if penalty is None else penalty,
        seed=_seed(body, defaults.seed),
    )


def _seed(body: Mapping[str, Any], default: int | None) -> int | None:
    seed = get_int(body, "seed", low=-(2**63), high=_U64 - 1)
    if seed is None:
        return default
    return None if seed == -1 else seed % _U64


def _stop(body: Mapping[str, Any]) -> tuple[str, ...]:
    given = body.get("stop")
    if given is None:
        return ()
    stops = [given] if isinstance(given, str) else given
    if not isinstance(stops, list):
        raise wrong_type("stop", given, "a string or an array of strings")
    if not 1 <= len(stops) <= MAX_STOPS:
        raise RequestError(f"`stop` holds {len(stops)} strings; 1 to {MAX_STOPS} are allowed", param="stop")
    together = 0
    for index, text in enumerate(stops):
        if not isinstance(text, str):
            raise wrong_type(f"stop[{index}]", text, "a string")
        size = len(text.encode())
        together += size
        if not 1 <= size <= MAX_STOP_BYTES:
            raise RequestError(f"`stop[{index}]` has {size} bytes; 1 to {MAX_STOP_BYTES} are allowed", param="stop")
    if together > MAX_STOP_BYTES_TOGETHER:
        raise RequestError(f"`stop` has {together} bytes together; at most {MAX_STOP_BYTES_TOGETHER} are allowed", param="stop")
    return tuple(stops)


def _grammar(body: Mapping[str, Any]) -> GrammarRequest | None:
    """``{"type": X, X: spec}`` asks for the grammar ``X`` with ``spec``; ``text`` asks for none."""
    given = get_object(body, "response_format")
    if given is None:
        return None
    kind = given.get("type")
    if not isinstance(kind, str):
        raise wrong_type("response_format.type", kind, "a string")
    for name in given:
        if name not in ("type", kind):
            raise UnsupportedFeatureError(
                f"`response_format` holds {shown(name)}, which is not supported with the type {shown(kind)}; leave it out",
                param="response_format",
            )
    spec = given.get(kind) if kind != "type" else None
    if kind == "text":
        return None
    if kind == "json_schema":
        schema = spec.get("schema") if isinstance(spec, dict) else None
        if not isinstance(schema, dict):
            raise RequestError(
                "`response_format.json_schema.schema` must be an object that holds a JSON schema",
                param="response_format.json_schema.schema",
            )
    return GrammarRequest(kind, spec)
