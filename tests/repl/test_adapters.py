from __future__ import annotations

import json
import re

import pytest

from tests.repl.terminal import PROMPT, piped, status_of, terminal


@pytest.fixture
def flags(tmp_path):
    for name in ("fr", "de"):
        (tmp_path / f"{name}.scripted").write_text(json.dumps({"fingerprint": name, "nbytes": 3 * 2**20}))
    return [f"--lora=fr={tmp_path / 'fr.scripted'}", f"--lora=de={tmp_path / 'de.scripted'}"]


def test_a_conversation_changes_its_adapter_at_a_terminal(tmp_path, flags):
    with terminal(tmp_path, *flags) as child:
        child.send("[[say:one]]\r")
        child.expect_exact("one\r\n")
        child.expect(PROMPT)
        child.send("/lora fr\r")
        child.expect_exact("* fr (scripted, 3.0 MiB)")
        child.expect(PROMPT)
        child.send("[[say:two]]\r")
        child.expect_exact("two<fr>\r\n")
        child.expect_exact("| script + fr]")
        child.expect(PROMPT)
        child.send("/lora off\r")
        child.expect_exact("* off")
        child.expect(PROMPT)
        child.send("[[say:three]]\r")
        child.expect_exact("three\r\n")
        child.expect(PROMPT)
        child.send("\r")
        assert status_of(child) == 0


def test_the_list_marks_the_one_in_use(tmp_path, flags):
    done = piped(tmp_path, "/lora\n/lora de\n[[say:hi]]\n/LORA OFF\n", *flags)
    notes = [line for line in done.stderr.decode().splitlines() if re.match(r"[* ] (fr|de|off)\b", line)]
    fr, de, off = "fr (scripted, 3.0 MiB)", "de (scripted, 3.0 MiB)", "off"
    assert notes == [f"  {fr}", f"  {de}", f"* {off}", f"  {fr}", f"* {de}", f"  {off}", f"  {fr}", f"  {de}", f"* {off}"]
    assert done.stdout == b"> > > hi<de>\n> > "


def test_the_one_without_a_name_is_in_use_from_the_start(tmp_path, flags):
    done = piped(tmp_path, "[[say:hi]]\n/lora off\n[[say:hi]]\n", f"--lora={tmp_path / 'fr.scripted'}")
    assert done.stdout == b"> hi<fr>\n> > hi\n> "
    assert b"=== scripted + fr (scripted) on script ===" in done.stderr


def test_an_unknown_adapter_names_the_nearest_and_changes_nothing(tmp_path, flags):
    done = piped(tmp_path, "/lora fr\n/lora dee\n[[say:hi]]\n", *flags)
    assert b"there is no adapter 'dee' (did you mean de?); adapters: fr, de, off\n" in done.stderr
    assert b"hi<fr>" in done.stdout


def test_without_any_adapter_the_way_out_is_named(tmp_path):
    done = piped(tmp_path, "/lora\n/lora fr\n")
    assert done.stderr.count(b"start with --lora NAME=PATH") == 2
    assert b"there is no adapter; start with" in done.stderr
