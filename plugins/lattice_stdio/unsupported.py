"""Keys of a request line that would change the answer and are not honoured here.

Each is accepted at its neutral value, at which it changes nothing; at any other the request is refused, so that nothing a
client asks for is silently left out. Keys that are named nowhere change nothing and are ignored, as they always were.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lattice_core.errors import UnsupportedFeatureError

if TYPE_CHECKING:
    from collections.abc import Mapping

_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "n": (1,),
    "best_of": (1,),
    "logprobs": (False, 0),
    "top_logprobs": (0,),
    "echo": (False,),
    "suffix": ("",),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "repeat_penalty": (1,),
    "logit_bias": ({}, []),
    "min_p": (0,),
    "typical_p": (1,),
    "top_a": (0,),
    "tfs_z": (1,),
    "xtc_probability": (0,),
    "mirostat": (0,),
    "min_tokens": (0,),
    "ignore_eos": (False,),
    "stop_token_ids": ([],),
    "stop_sequences": ([],),
    "max_completion_tokens": (),
    "max_new_tokens": (),
    "n_predict": (-1,),
    "num_predict": (-1,),
    "grammar": ("",),
    "json_schema": (),
    "guided_json": (),
    "guided_regex": (),
    "guided_choice": (),
    "guided_grammar": (),
    "reasoning_budget": (0,),
    "reasoning_effort": (),
    "enable_thinking": (),
    "thinking": (False,),
    "think": (False,),
    "system": ("",),
    "images": ([],),
    "lora": ([], ""),
    "adapter": ("",),
}

_INSTEAD = {
    "repeat_penalty": "use repetition_penalty",
    "max_completion_tokens": "use max_tokens",
    "max_new_tokens": "use max_tokens",
    "n_predict": "use max_tokens",
    "num_predict": "use max_tokens",
    "stop_sequences": "use stop",
    "system": "send it as a message",
    "enable_thinking": "send it in chat_template_kwargs",
    "grammar": "use response_format",
    "json_schema": "use response_format",
}


def refuse_unsupported(body: Mapping[str, Any]) -> None:
    """Raise ``UnsupportedFeatureError`` for the first key that asks for what is not built."""
    for name, value in body.items():
        if value is None or name not in _NEUTRAL or _is_neutral(name, value):
            continue
        raise UnsupportedFeatureError(f'"{name}" is not supported here: {_INSTEAD.get(name, "leave it out")}', param=name)


def _is_neutral(name: str, value: Any) -> bool:
    # True equals 1 in Python, and in JSON it does not.
    return any(value == neutral and isinstance(value, bool) == isinstance(neutral, bool) for neutral in _NEUTRAL[name])
