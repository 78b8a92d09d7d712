"""Deltas are whole characters that join to the reply; stop strings and finish reasons."""

import pytest

from lattice_conformance.harness import scripted_engine
from lattice_conformance.scripted_backend import ScriptedBackend
from lattice_core.types import (
    Delta,
    FinishReason,
)
from tests.contracts.asking import ask, text_of


@pytest.mark.parametrize("text", ["grüße, 日本 👩‍👩‍👧!", " leading  and trailing  ", "\n\n    indented\n", "\ufffd"])
def test_deltas_join_to_the_reply_and_hold_whole_characters(lookahead, text):
    with scripted_engine(backend=ScriptedBackend(lookahead=lookahead)) as engine:
        events = list(engine.submit(ask(f"[[say:{text}]]")))
        assert text_of(events) == text
        assert all("\ufffd" not in event.text or "\ufffd" in text for event in events if isinstance(event, Delta))
        tokens = tuple(token for event in events if isinstance(event, Delta) for token in event.token_ids)
        assert bytes(tokens).decode() == text
        assert events[-1].usage.completion_tokens == len(tokens)


def test_a_character_cut_by_the_token_limit_ends_as_one_replacement():
    with scripted_engine() as engine:
        events = list(engine.submit(ask("[[say:日本]]", max_tokens=4)))
        assert (text_of(events), events[-1].finish_reason) == ("日\ufffd", FinishReason.LENGTH)


@pytest.mark.parametrize(
    ("stops", "expected", "reason"),
    [
        (("beta gamma",), "alpha ", FinishReason.STOP),
        (("gamma", "beta"), "alpha ", FinishReason.STOP),
        (("delta!",), "alpha beta gamma delta", FinishReason.STOP),
        (("nothing",), "alpha beta gamma delta", FinishReason.STOP),
        (("a",), "", FinishReason.STOP),
    ],
)
def test_nothing_of_a_stop_string_is_shown(lookahead, stops, expected, reason):
    with scripted_engine(backend=ScriptedBackend(lookahead=lookahead)) as engine:
        events = list(engine.submit(ask("[[say:alpha beta gamma delta]]", stop=stops)))
        assert (text_of(events), events[-1].finish_reason) == (expected, reason)


def test_finish_reasons_tell_stop_from_length(lookahead):
    with scripted_engine(backend=ScriptedBackend(lookahead=lookahead)) as engine:
        for limit, text, reason in [(5, "xxxxx", "length"), (6, "xxxxxx", "length"), (7, "xxxxxx", "stop")]:
            events = list(engine.submit(ask("[[repeat:6]]", max_tokens=limit)))
            assert (text_of(events), events[-1].finish_reason.value) == (text, reason)
