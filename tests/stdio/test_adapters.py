from __future__ import annotations

import json

import pytest

from lattice_core.errors import UsageError
from lattice_stdio.frontend import StdioFrontend
from tests.stdio.running import Lines, ended, eventually, lattice, settings


@pytest.fixture
def loras(tmp_path):
    for name in ("fr", "de"):
        (tmp_path / f"{name}.scripted").write_text(json.dumps({"fingerprint": name}))
    return tmp_path


def said(events):
    return "".join(event["token"] for event in events if event["ev"] == "gen_token")


def test_a_line_chooses_an_adapter_by_model_or_by_the_field(loras, serving, logged):
    running = serving()
    for name in ("fr", "de"):
        running.engine.load_adapter(name, loras / f"{name}.scripted")
    asked = [{"model": "fr"}, {"lora": [{"id": "de"}]}, {"lora": []}, {}]
    assert [said(running.ask({"prompt": "[[say:hi]]", **fields})) for fields in asked] == ["hi<fr>", "hi<de>", "hi", "hi"]

    def figures():
        return [line.partition(":")[0] for line in logged if " gen in " in line]

    # The last line is logged after its answer has been read here.
    eventually(lambda: len(figures()) == len(asked))
    assert figures() == ["script + fr", "script + de", "script", "script"]


@pytest.mark.parametrize(
    ("fields", "code", "message"),
    [
        ({"model": "pl"}, "model_not_found", "the model 'pl' is not served here; served: scripted, fr"),
        ({"lora": [{"id": "pl"}]}, "lora_adapter_not_found", "no adapter 'pl' is loaded; loaded: fr"),
        ({"lora": "fr"}, "invalid_request", "`lora` must be an array"),
        ({"model": "fr", "lora": []}, "invalid_request", "`model` names the adapter 'fr' and `lora` wants no adapter"),
    ],
)
def test_a_line_that_chooses_none_there_is_gets_an_error_and_the_next_is_read(loras, serving, fields, code, message):
    running = serving()
    running.engine.load_adapter("fr", loras / "fr.scripted")
    [error] = running.ask({"prompt": "x", **fields})
    assert (error["ev"], error["code"]) == ("error", code)
    assert message in error["msg"]
    assert said(running.ask({"prompt": "[[say:on]]"})) == "on"


def test_a_single_prompt_is_answered_with_the_adapter_that_has_no_name(loras):
    with lattice("--prompt", "[[say:hi]]", "--lora", str(loras / "fr.scripted")) as process:
        assert process.stdout.read() == b"hi<fr>\n"
        status, errors = ended(process)
    assert status == 0
    assert "[lattice] adapter 'fr' (scripted, 8 B) is loaded\n" in errors
    assert "[lattice] script + fr: " in errors


def test_the_loop_serves_named_adapters_from_its_first_line_on(loras):
    with lattice("--json", "--serve", "--lora", f"fr={loras / 'fr.scripted'}", "--lora", str(loras / "de.scripted")) as process:
        lines = Lines(process.stdout.fileno())
        assert lines.event() == {"ev": "ready"}
        process.stdin.write(b'{"prompt":"[[say:a]]","model":"fr"}\n{"prompt":"[[say:b]]"}\n')
        process.stdin.close()
        assert [said(lines.answer()), said(lines.answer())] == ["a<fr>", "b<de>"]
        assert ended(process)[0] == 0


def test_a_named_adapter_that_a_single_prompt_could_never_use_is_a_usage_error():
    made = settings(prompt="hi", lora=("fr=/x/fr",))
    made.sources["lora"] = "flag"
    with pytest.raises(UsageError, match=r"--lora fr=/x/fr: a single --prompt names no adapter; give --lora /x/fr$"):
        StdioFrontend(made)


def test_a_variable_may_name_adapters_for_other_runs(loras):
    made = settings(prompt="hi", lora=("fr=/x/fr",))
    made.sources["lora"] = "environment"
    StdioFrontend(made)
