"""The fields of chat requests that would change the output and are not honoured here, and those that change nothing.

The names are those of the OpenAI API and of widespread local servers. A field is accepted at its neutral value, at which it
would change nothing; at any other it is refused, so that nothing a client asks for is silently left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lattice_openai.errors import unsupported
from lattice_openai.fields import shown

if TYPE_CHECKING:
    from collections.abc import Mapping

_NEUTRAL: dict[str, tuple[Any, ...]] = {
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
    "chat_template_kwargs": ({},),
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
    "lora": ([], ""),
    "lora_path": (),
    "options": ({},),
    "plugins": ([],),
    "transforms": ([],),
    "models": ([],),
    "background": (False,),
}

_GOVERNED = {
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

_INSTEAD = {
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
}

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


def refuse_unsupported(body: Mapping[str, Any]) -> None:
    """Raise ``ApiError`` 400 ``unsupported_feature`` for the first field that asks for what is not built."""
    for name, value in body.items():
        if value is None:
            continue
        if name in _NEUTRAL:
            refused = not _is_neutral(name, value)
        elif name in _GOVERNED:
            refused = not any(body.get(governor) is not None for governor in _GOVERNED[name])
        else:
            refused = False
        if refused:
            way_out = _INSTEAD.get(name, "leave it out")
            raise unsupported(f"`{name}` ({shown(value)}) is not supported here; {way_out}", param=name)


def is_known(name: str) -> bool:
    """Whether ``name`` is a field that this module decides about."""
    return name in INERT or name in _NEUTRAL or name in _GOVERNED


def _is_neutral(name: str, value: Any) -> bool:
    # True is 1 in Python, and false is no number on the wire.
    return any(value == neutral and isinstance(value, bool) == isinstance(neutral, bool) for neutral in _NEUTRAL[name])
