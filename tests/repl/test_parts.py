from __future__ import annotations

import io
import re

import pytest

from lattice_conformance.gate import Gate
from lattice_conformance.harness import scripted_engine
from lattice_core.errors import RequestError
from lattice_core.types import Done, FinishReason, Message, SamplingParams, Timings, Usage
from lattice_repl.adapter_choice import AdapterChoice
from lattice_repl.answer import Answerer, why_cut
from lattice_repl.commands import HELP, NAMES, Commands
from lattice_repl.conversation import Conversation, Turn
from lattice_repl.generation_settings import SETTINGS, GenerationSettings
from lattice_repl.screen import Screen, harmless

CORE = {"max-tokens": 512, "temperature": 0.7, "top-k": 50, "top-p": 0.9, "repetition-penalty": 1.1, "seed": None}


@pytest.fixture
def screen():
    made = Screen(io.StringIO(), io.StringIO())
    made.shown = made._out.getvalue
    made.notes = lambda: made._err.getvalue().splitlines()
    return made


# ------------------------------------------------------------------------------------------------ settings


def test_settings_begin_with_the_command_lines():
    settings = GenerationSettings(CORE)
    assert settings.sampling == SamplingParams(temperature=0.7, top_k=50, top_p=0.9, repetition_penalty=1.1, seed=None)
    assert settings.max_tokens == 512


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("temperature", "0", "temperature 0.0"),
        ("top-k", "7", "top-k 7"),
        ("top_p", "1", "top-p 1.0"),
        ("Repetition-Penalty", "1.5", "repetition-penalty 1.5"),
        ("max-tokens", "1", "max-tokens 1"),
        ("seed", "18446744073709551615", "seed 18446744073709551615"),
        ("seed", "none", "seed none"),
    ],
)
def test_a_setting_takes_a_value_within_its_limits(name, text, line):
    settings = GenerationSettings(CORE)
    settings.change(name, text)
    assert settings.line(name) == line


@pytest.mark.parametrize(
    ("name", "text", "limits"),
    [
        ("temperature", "hot", "temperature must be a number from 0 to 100, not 'hot'"),
        ("temperature", "nan", "not 'nan'"),
        ("temperature", "-1", "not '-1'"),
        ("top-k", "1.5", "top-k must be a whole number from 0 to 2147483647"),
        ("top-p", "0", "top-p must be a number above 0 and at most 1"),
        ("repetition-penalty", "0", "above 0 and at most 100"),
        ("max-tokens", "0", "max-tokens must be a whole number from 1 to"),
        ("max-tokens", "none", "not 'none'"),
        ("seed", "-1", "seed must be a whole number from 0 to 18446744073709551615, or none"),
    ],
)
def test_a_value_outside_its_limits_is_refused_with_them_and_changes_nothing(name, text, limits):
    settings = GenerationSettings(CORE)
    with pytest.raises(RequestError, match=re.escape(limits)):
        settings.change(name, text)
    assert settings.line(name) == GenerationSettings(CORE).line(name)


def test_an_unknown_setting_names_the_nearest_and_all():
    with pytest.raises(RequestError, match=r"'temprature' \(did you mean temperature\?\); settings: temperature, top-k"):
        GenerationSettings(CORE).change("temprature", "1")


# ------------------------------------------------------------------------------------------------ conversation


def test_messages_are_the_system_message_the_turns_and_the_new_text():
    conversation = Conversation("S", [Turn("a", "b"), Turn("c", "d")])
    old = [Message("user", "a"), Message("assistant", "b"), Message("user", "c"), Message("assistant", "d")]
    assert conversation.messages("e") == (Message("system", "S"), *old, Message("user", "e"))
    assert conversation.messages("e", without=1) == (Message("system", "S"), *old[2:], Message("user", "e"))
    assert Conversation("").messages("e") == (Message("user", "e"),)


def test_a_new_turn_is_kept_trimmed_and_left_out_ones_are_forgotten():
    conversation = Conversation("", [Turn("a", "b"), Turn("c", "d")])
    conversation.add("e", "\n f \n", without=1)
    assert conversation.turns == [Turn("c", "d"), Turn("e", "f")]


# ------------------------------------------------------------------------------------------------ commands


@pytest.fixture
def commands(screen):
    with scripted_engine() as engine:
        yield Commands(Conversation("S", [Turn("a", "b")]), GenerationSettings(CORE), screen, AdapterChoice(engine))


def test_help_lists_every_command(commands, screen):
    assert commands.run("/help")
    notes = screen.notes()
    assert len(notes) == len(HELP)
    assert all(any(note.startswith(name) for note in notes) for name in NAMES)


def test_quit_asks_to_leave(commands):
    assert not commands.run("/quit")


def test_reset_forgets_the_turns_and_keeps_the_rest(commands):
    commands.run("/reset")
    assert commands._conversation == Conversation("S", [])


def test_system_shows_sets_and_removes(commands, screen):
    for line in ("/system", "/system  be  kind ", "/system off"):
        commands.run(line)
    assert screen.notes() == ["system message: S", "system message: be  kind", "there is no system message"]
    assert commands._conversation.system == ""


def test_set_shows_one_or_all_and_says_what_is_wrong(commands, screen):
    commands.run("/set")
    commands.run("/set top-k")
    commands.run("/set top-k many")
    commands.run("/set seed 5")
    notes = screen.notes()
    assert notes[: len(SETTINGS)] == [GenerationSettings(CORE).line(name) for name in SETTINGS]
    assert notes[len(SETTINGS) :] == ["top-k 50", "top-k must be a whole number from 0 to 2147483647, not 'many'", "seed 5"]


def test_an_unknown_command_names_the_nearest(commands, screen):
    assert commands.run("/rest")
    assert "there is no command /rest (did you mean /reset?)" in screen.notes()[0]


# ------------------------------------------------------------------------------------------------ screen and answers


def test_only_tabs_and_line_breaks_are_left_of_control_characters():
    text = "".join(map(chr, range(0x100)))
    assert harmless(text) == "\t\n" + "".join(map(chr, [*range(0x20, 0x7F), *range(0xA0, 0x100)]))
    assert harmless("日本 👩‍👩‍👧") == "日本 👩‍👩‍👧"


def test_what_the_encoding_of_the_terminal_lacks_is_replaced():
    out = io.TextIOWrapper(io.BytesIO(), "ascii")
    Screen(out, io.StringIO()).show("naïve")
    assert out.buffer.getvalue() == b"na?ve"


def done(reason, tokens):
    return Done(reason, Usage(prompt_tokens=10, completion_tokens=tokens), Timings())


def test_a_whole_answer_needs_no_explanation():
    assert why_cut(done(FinishReason.STOP, 5), 100) is None
    assert "the context of 15 tokens is full" in why_cut(done(FinishReason.LENGTH, 5), 15)
    assert "cut at 5 tokens" in why_cut(done(FinishReason.LENGTH, 5), 100)


def test_a_closed_output_cancels_the_answer():
    class Closed(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

    gate = Gate()
    with scripted_engine(gate) as engine:
        answerer = Answerer(engine, Screen(Closed(), io.StringIO()), AdapterChoice(engine))
        with pytest.raises(BrokenPipeError):
            answerer.ask(Conversation(""), "[[repeat:500]]", GenerationSettings(CORE))
        gate.open()
        while engine.stats().running or engine.stats().queued:
            assert gate.wait_blocked(0.01) is False
        assert engine.stats().cancelled == 1


def test_cancelling_before_an_answer_ends_it_at_once(screen):
    with scripted_engine() as engine:
        answerer = Answerer(engine, screen, AdapterChoice(engine))
        answerer.cancel()
        ended = answerer.ask(Conversation(""), "[[repeat:3000]]", GenerationSettings(CORE | {"max-tokens": 4000}))
    assert ended.cancelled is not None
    assert len(ended.text) < 3000
