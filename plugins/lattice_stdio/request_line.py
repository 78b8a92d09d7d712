"""A request line as a ``GenerationRequest``: which keys there are, of which type and within which limits.

An absent key or null takes the default of the command line. A wrong type or value is an error that names the key, never a
silent default. Knows nothing of files and events.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import frozen

from lattice_core.errors import RequestError
from lattice_core.types import GenerationRequest, GrammarRequest, Message, SamplingParams
from lattice_stdio.fields import get_int, get_number, get_object, get_text, wrong
from lattice_stdio.unsupported import refuse_unsupported

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lattice_core.descriptors import Settings

ROLES = ("system", "developer", "user", "assistant", "tool")
MAX_MESSAGES = 4096
MAX_STOPS, MAX_STOP_BYTES, MAX_STOPS_BYTES = 4, 4096, 8192
_HIGHEST_SEED = 2**64 - 1


@frozen
class Defaults:
    """What a request gets that does not say otherwise. ``explicit`` are the core options that somebody has set."""

    max_tokens: int
    sampling: SamplingParams
    explicit: frozenset[str] = frozenset()

    @classmethod
    def of(cls, settings: Settings) -> Defaults:
        """The defaults of the command line."""
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


def echo_of(body: Any) -> dict[str, Any]:
    """The request's ``id``, to be repeated in all its events; empty when it has none that could be."""
    found = body.get("id") if isinstance(body, dict) else None
    return {"id": found} if isinstance(found, str | int | float) else {}


def parse_request(body: Any, defaults: Defaults) -> GenerationRequest:
    """The request that ``body`` (parsed JSON) asks for. Raises ``RequestError`` that names the key."""
    if not isinstance(body, dict):
        raise RequestError('missing "prompt" field', param="prompt")
    found_id = body.get("id")
    if found_id is not None and not echo_of(body):
        raise wrong("id", found_id, "a string or a number")
    refuse_unsupported(body)
    messages, prompt = _messages(body), _prompt(body)
    if messages is not None and prompt is not None:
        raise RequestError('"prompt" and "messages" exclude each other: send one of them', param="messages")
    if messages is None and prompt is None:
        raise RequestError('missing "prompt" field', param="prompt")
    options = get_object(body, "chat_template_kwargs")
    if options and messages is None:
        raise RequestError(
            '"chat_template_kwargs" goes with "messages": a "prompt" is taken as it is', param="chat_template_kwargs"
        )
    grammar = _grammar(body)
    return GenerationRequest(
        messages=messages,
        prompt=prompt,
        model=get_text(body, "model"),
        max_tokens=_max_tokens(body, grammar, defaults),
        stop=_stop(body),
        sampling=_sampling(body, grammar, defaults),
        grammar=grammar,
        template_options=options,
    )


def _prompt(body: Mapping[str, Any]) -> str | None:
    prompt = body.get("prompt")
    if prompt is not None and not isinstance(prompt, str):
        raise RequestError(f'missing "prompt" field: {wrong("prompt", prompt, "a string").message}', param="prompt")
    return prompt


def _messages(body: Mapping[str, Any]) -> tuple[Message, ...] | None:
    given = body.get("messages")
    if given is None:
        return None
    if not isinstance(given, list) or not 1 <= len(given) <= MAX_MESSAGES:
        raise wrong("messages", given, f"a list of 1 to {MAX_MESSAGES} messages")
    return tuple(_message(f"messages[{number}]", item) for number, item in enumerate(given))


def _message(name: str, item: Any) -> Message:
    if not isinstance(item, dict):
        raise wrong(name, item, "an object with role and content")
    role, content = item.get("role"), item.get("content")
    if role not in ROLES:
        raise wrong(f"{name}.role", role, f"one of {', '.join(ROLES)}")
    if not isinstance(content, str):
        raise wrong(f"{name}.content", content, "a string")
    if item.get("tool_calls"):
        raise wrong(f"{name}.tool_calls", item["tool_calls"], "left out: tools are not supported here")
    return Message(role, content)


def _max_tokens(body: Mapping[str, Any], grammar: GrammarRequest | None, defaults: Defaults) -> int | None:
    given = get_int(body, "max_tokens", low=1)
    # A constrained answer that is cut is broken: it gets the rest of the context unless somebody set a number.
    if given is None and not (grammar is not None and "max-tokens" not in defaults.explicit):
        return defaults.max_tokens
    return given


def _sampling(body: Mapping[str, Any], grammar: GrammarRequest | None, defaults: Defaults) -> SamplingParams:
    base = defaults.sampling
    penalty = get_number(body, "repetition_penalty", low=0, high=100, above=True)
    if penalty is None:
        # The punctuation of JSON must repeat.
        neutral = grammar is not None and "repetition-penalty" not in defaults.explicit
        penalty = 1.0 if neutral else base.repetition_penalty
    temperature = get_number(body, "temperature", low=0, high=100)
    top_p = get_number(body, "top_p", low=0, high=1, above=True)
    top_k = get_int(body, "top_k", low=0)
    return SamplingParams(
        temperature=base.temperature if temperature is None else temperature,
        top_k=base.top_k if top_k is None else min(top_k, 2**31 - 1),
        top_p=base.top_p if top_p is None else top_p,
        repetition_penalty=penalty,
        seed=_seed(body, base.seed),
    )


def _seed(body: Mapping[str, Any], default: int | None) -> int | None:
    seed = get_int(body, "seed", low=-1, high=_HIGHEST_SEED)
    if seed is None:
        return default
    return None if seed == -1 else seed


def _stop(body: Mapping[str, Any]) -> tuple[str, ...]:
    given = body.get("stop")
    if given is None:
        return ()
    stops = [given] if isinstance(given, str) else given
    wanted = f"a string or a list of 1 to {MAX_STOPS} strings"
    if not isinstance(stops, list) or not 1 <= len(stops) <= MAX_STOPS:
        raise wrong("stop", given, wanted)
    sizes = []
    for number, text in enumerate(stops):
        size = len(text.encode("utf-8", "surrogatepass")) if isinstance(text, str) else 0
        if not 1 <= size <= MAX_STOP_BYTES:
            raise wrong(f"stop[{number}]", text, f"a string of 1 to {MAX_STOP_BYTES} bytes")
        sizes.append(size)
    if sum(sizes) > MAX_STOPS_BYTES:
        raise RequestError(f'"stop" has {sum(sizes)} bytes together; at most {MAX_STOPS_BYTES} are allowed', param="stop")
    return tuple(stops)


def _grammar(body: Mapping[str, Any]) -> GrammarRequest | None:
    """``{"type": X, X: spec}`` asks for the grammar ``X`` with ``spec``; the type ``text`` asks for none."""
    given = get_object(body, "response_format")
    if not given:
        return None
    kind = given.get("type")
    if not isinstance(kind, str):
        raise wrong("response_format.type", kind, "a string")
    for name in given:
        if name not in {"type", kind}:
            raise RequestError(f'"response_format.{name}" is not known for the type {kind}: leave it out', param=name)
    return None if kind == "text" else GrammarRequest(kind, given.get(kind) if kind != "type" else None)
