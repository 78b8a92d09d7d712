"""The fields of requests that would change the output and are not honoured, and those that change nothing.

The names are those of the OpenAI API and of widespread local servers. A field is accepted at its neutral value, at which it
would change nothing; at any other it is refused, so that nothing a client asks for is silently left out. A frontend names
the fields that it honours itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lattice_core.errors import UnsupportedFeatureError
from lattice_core.wire.json_fields import get_int, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    # tools
    "tools": ([],),
    "tool_choice": ("none",),
    "functions": ([],),
    "function_call": ("none",),
    # what is answered
    "logprobs": (False,),
    "top_logprobs": (0,),
    "prompt_logprobs": (0, False),
    "n_probs": (0,),
    "modalities": (["text"], []),
    "audio": (),
    "prediction": (),
    "web_search_options": (),
    "verbosity": ("medium",),
    "echo": (False,),
    "suffix": ("",),
    "best_of": (1,),
    "return_tokens_as_token_ids": (False,),
    "return_token_ids": (False,),
    "include_stop_str_in_output": (False,),
    "skip_special_tokens": (True,),
    # penalties and biases
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "logit_bias": ({}, []),
    "repeat_penalty": (),
    "repeat_last_n": (-1,),
    "repetition_context_size": (),
    "repetition_range": (),
    "encoder_repetition_penalty": (1,),
    "no_repeat_ngram_size": (0,),
    "length_penalty": (1,),
    "dry_multiplier": (0,),
    "penalty_alpha": (0,),
    # samplers
    "min_p": (0,),
    "typical_p": (1, 0),
    "typical": (1, 0),
    "tfs": (1,),
    "tfs_z": (1,),
    "top_a": (0,),
    "top_n_sigma": (-1, 0),
    "xtc_probability": (0,),
    "mirostat": (0,),
    "mirostat_mode": (0,),
    "dynatemp_range": (0,),
    "dynamic_temperature": (False,),
    "epsilon_cutoff": (0,),
    "eta_cutoff": (0,),
    "smoothing_factor": (0,),
    "temperature_last": (False,),
    "min_keep": (0,),
    "samplers": ([], ""),
    "sampler_priority": ([],),
    "sampler_order": ([],),
    "do_sample": (),
    "num_beams": (1,),
    "use_beam_search": (False,),
    "guidance_scale": (1,),
    "cfg_scale": (1,),
    "negative_prompt": ("",),
    "logits_processors": ([],),
    # where the output ends
    "min_tokens": (0,),
    "min_new_tokens": (0,),
    "ignore_eos": (False,),
    "ban_eos_token": (False,),
    "stop_token_ids": ([],),
    "stop_sequences": ([],),
    "max_new_tokens": (),
    "max_length": (),
    "n_predict": (-1,),
    "num_predict": (-1,),
    "t_max_predict_ms": (0, -1),
    "truncate_prompt_tokens": (),
    # constraints
    "grammar": ("",),
    "json_schema": (),
    "guided_json": (),
    "guided_regex": (),
    "guided_choice": (),
    "guided_grammar": (),
    "guided_decoding": (),
    "structured_outputs": (),
    "structural_tag": (),
    "regex": (),
    "ebnf": (),
    "format": ("",),
    "bad_words": ([],),
    "bad_words_ids": ([],),
    "allowed_token_ids": ([],),
    # reasoning
    "reasoning": (),
    "reasoning_budget": (0,),
    "reasoning_effort": (),
    "reasoning_format": (),
    "thinking": (),
    "thinking_budget": (),
    "thinking_budget_tokens": (),
    "thinking_token_budget": (),
    "enable_thinking": (),
    "think": (),
    "include_reasoning": (),
    "separate_reasoning": (),
    # prompt and template
    "prompt": (),
    "input": (),
    "instructions": (),
    "previous_response_id": (),
    "system": (),
    "documents": ([],),
    "chat_template": (),
    "add_generation_prompt": (True,),
    "continue_final_message": (False,),
    "add_special_tokens": (False,),
    "mm_processor_kwargs": ({},),
    "images": ([],),
    "image_data": ([],),
    # model
    "adapter": ("",),
    "adapters": ([], ""),
    "adapter_path": (),
    "lora_path": (),
    "options": ({},),
    "plugins": ([],),
    "transforms": ([],),
    "models": ([],),
    "background": (False,),
}
"""The values at which a field changes nothing. ``tool_choice`` ``auto`` is none: who sends it expects that tools are called."""

GOVERNED: Mapping[str, tuple[str, ...]] = {
    "dry_base": ("dry_multiplier",),
    "dry_allowed_length": ("dry_multiplier",),
    "dry_penalty_last_n": ("dry_multiplier",),
    "dry_range": ("dry_multiplier",),
    "dry_sequence_breakers": ("dry_multiplier",),
    "xtc_threshold": ("xtc_probability",),
    "mirostat_tau": ("mirostat", "mirostat_mode"),
    "mirostat_eta": ("mirostat", "mirostat_mode"),
    "dynatemp_exponent": ("dynatemp_range",),
    "dynatemp_low": ("dynamic_temperature",),
    "dynatemp_high": ("dynamic_temperature",),
    "smoothing_curve": ("smoothing_factor",),
    "guided_decoding_backend": ("guided_json", "guided_regex", "guided_choice", "guided_grammar"),
    "guided_whitespace_pattern": ("guided_json",),
}
"""Fields that mean nothing while the field that governs them is present and neutral."""

INSTEAD: Mapping[str, str] = {
    "repeat_penalty": "use repetition_penalty",
    "do_sample": "use temperature",
    "max_new_tokens": "use max_tokens",
    "max_length": "use max_tokens",
    "n_predict": "use max_tokens",
    "num_predict": "use max_tokens",
    "stop_sequences": "use stop",
    "system": "send a message of the role system",
    "instructions": "send a message of the role system",
    "prompt": "send messages",
    "input": "send messages",
    "grammar": "use response_format",
    "json_schema": "use response_format",
    "enable_thinking": "send it in chat_template_kwargs",
    "adapter": "name the adapter as model",
    "adapters": "name the adapter as model",
    "adapter_path": "load the adapter first, then name it as model",
    "lora_path": "load the adapter first, then name it as model",
}
"""The way out for a field whose purpose another one serves."""

INERT = frozenset(
    {
        "user",
        "metadata",
        "store",
        "service_tier",
        "safety_identifier",
        "prompt_cache_key",
        "prompt_cache_retention",
        "parallel_tool_calls",
        "cache_prompt",
        "cache_salt",
        "id_slot",
        "keep_alive",
        "request_id",
        "session_id",
        "priority",
        "return_progress",
        "timings_per_token",
        "provider",
        "route",
        "usage",
    }
)
"""Fields about the request that leave its output as it is."""


def refuse_unsupported(body: Mapping[str, Any], honoured: frozenset[str] = frozenset()) -> None:
    """Raise ``UnsupportedFeatureError`` for the first field that asks for what is not built.

    ``honoured`` are fields of the table that the caller reads itself. ``n`` other than an integer from 1 is a ``RequestError``.
    """
    for name, value in body.items():
        if value is None or name in honoured:
            continue
        if name in NEUTRAL:
            refused = not _is_neutral(name, value)
        elif name in GOVERNED:
            refused = not any(body.get(governor) is not None for governor in GOVERNED[name])
        else:
            refused = False
        if refused:
            way_out = INSTEAD.get(name, "leave it out")
            raise UnsupportedFeatureError(f"`{name}` ({shown(value)}) is not supported here; {way_out}", param=name)
    choices = get_int(body, "n", low=1)
    if choices is not None and choices > 1:
        raise UnsupportedFeatureError(
            f"`n` is {shown(choices)}; one choice per request is supported here, send several", param="n"
        )


def unknown_fields(body: Mapping[str, Any], own: frozenset[str]) -> tuple[str, ...]:
    """The names in ``body`` that are neither among the caller's ``own`` nor decided about here."""
    known = own | INERT | NEUTRAL.keys() | GOVERNED.keys() | {"n"}
    return tuple(name for name in body if name not in known)


def _is_neutral(name: str, value: Any) -> bool:
    # True is 1 in Python, and false is no number on the wire.
    return any(value == neutral and isinstance(value, bool) == isinstance(neutral, bool) for neutral in NEUTRAL[name])
