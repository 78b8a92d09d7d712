"""The formats where they are used: chosen by the command, called by the engine."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from lattice_chat.template_format import TemplateFormat
from lattice_conformance.fakes import GreedySampler
from lattice_conformance.scripted_backend import ScriptedBackend, ScriptedCheckpoint
from lattice_core.engine import Engine, EngineConfig
from lattice_core.errors import RequestError
from lattice_core.types import Delta, GenerationRequest, Message


@pytest.fixture
def engine():
    """A function that starts an engine with a chat template."""
    engines = []

    def start(template):
        engines.append(
            Engine.start(
                checkpoint=ScriptedCheckpoint(),
                backend=ScriptedBackend,
                sampler=GreedySampler,
                chat_format=lambda vocabulary: TemplateFormat(template, vocabulary),
                config=EngineConfig(model_id="m"),
            )
        )
        return engines[-1]

    yield start
    for running in engines:
        running.close()


def said(engine, request):
    return "".join(event.text for event in engine.submit(request) if isinstance(event, Delta))


def test_what_a_template_refuses_is_refused_before_any_work(engine):
    running = engine("{{ raise_exception('Conversation roles must alternate') }}")
    with pytest.raises(RequestError, match="Conversation roles must alternate") as caught:
        running.submit(GenerationRequest(messages=(Message("user", "x"),)))
    assert caught.value.http_status == 400
    assert running.stats().steps == 0


def test_a_broken_template_leaves_raw_prompts_working(engine):
    running = engine("{% if %}")
    with pytest.raises(RequestError, match="does not compile: line 1"):
        running.submit(GenerationRequest(messages=(Message("user", "x"),)))
    assert said(running, GenerationRequest(prompt="[[say:raw]]")) == "raw"


def test_options_of_a_request_reach_the_template(engine):
    running = engine("{{ messages[0].content }}{% if enable_thinking is false %}[[say: no thinking]]{% endif %}")
    request = GenerationRequest(messages=(Message("user", "[[say:hi]]"),), template_options={"enable_thinking": False})
    assert said(running, request) == "hi no thinking"


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "lattice_core", *arguments], capture_output=True, timeout=60, check=False, text=True
    )


def test_a_template_file_is_used_from_the_command_line(tmp_path):
    path = tmp_path / "mine.jinja"
    path.write_text("Q: {{ messages[0].content }}\nA:")
    arguments = ("run", "--backend", "scripted", "--chat-format", "template", "--template-file", str(path))
    done = run(*arguments, "--prompt", "[[echo]]")
    assert (done.returncode, done.stdout) == (0, "Q: [[echo]]\nA:\n")


def test_chatml_is_found_out_from_the_vocabulary():
    done = run("run", "--backend", "scripted", "--prompt", "[[echo]]")
    assert done.stdout == "<|im_start|>user\n[[echo]]<|im_end|>\n<|im_start|>assistant\n\n"


def test_choosing_the_template_of_a_model_without_one_is_a_usage_error():
    done = run("run", "--backend", "scripted", "--chat-format", "template", "--prompt", "x")
    assert done.returncode == 2
    assert "--chat-format chatml" in done.stderr


def test_reading_what_is_registered_imports_no_template_engine():
    code = "import sys, json, lattice_chat.plugin as p; list(p.lattice_chat_formats()); print(json.dumps(sorted(sys.modules)))"
    modules = json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, timeout=60).stdout)
    assert "jinja2" not in modules
    assert "tokenizers" not in modules
