"""The documented command lines of the Rust programs that Lattice re-implements, word for word.

Only the binary's name and the model's are replaced. The lines stand in the comment headers of ``lattice_serve`` 0.4.2 and 0.5.0
and of ``chat_metal`` 0.4.2. Lines with ``--lora`` are left out: adapters are not built.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import time

import pytest

pytestmark = [pytest.mark.model, pytest.mark.timeout(300)]

SERVE = ["lattice_serve --model qwen3.5-0.8b", "lattice_serve --model ~/.lattice/models/qwen3.6-27b-q4 --port 11435"]
CURL = """curl http://127.0.0.1:11435/v1/chat/completions -H 'content-type: application/json' \\
  -d '{"model":"lattice","messages":[{"role":"user","content":"hi"}],"stream":true}'
"""
ONE_SHOT = [
    'chat_metal --model ~/.lattice/models/qwen3.5-0.8b --prompt "Hello" --max-tokens 64 --json',
    'chat_metal --model qwen3.5-0.8b-q4 --prompt "Hello" --max-tokens 64 --json',
]
JSON_SERVE = "chat_metal --model ~/.lattice/models/qwen3.5-0.8b --json --serve"
REQUEST = '{"prompt":"<chatml>","max_tokens":64,"temperature":0.7,"top_k":50,"top_p":0.9,"repetition_penalty":1.1,"seed":42}'
REPL = 'cargo run --release -p lattice-inference --bin chat_metal --features "f16,metal-gpu"'

MODELS = ("qwen3.5-0.8b-q4", "qwen3.5-0.8b", "qwen3.6-27b-q4")
BINARIES = {
    "lattice_serve": "lattice",
    "chat_metal": "lattice",
    'cargo run --release -p lattice-inference --bin chat_metal --features "f16,metal-gpu"': "lattice chat",
}


@pytest.fixture(scope="module")
def home(tmp_path_factory, smollm2_path):
    """A home directory whose model cache holds the demo model, and nothing of the environment's own settings."""
    home = tmp_path_factory.mktemp("home")
    models = home / ".lattice" / "models"
    models.mkdir(parents=True)
    (models / "smollm2-135m").symlink_to(smollm2_path.parent)
    return home


def shell_line(line):
    for model in MODELS:
        line = line.replace(model, "smollm2-135m")
    for seed, ours in BINARIES.items():
        if line.startswith(seed):
            return line.replace(seed, ours, 1)
    return line


def start(home, line):
    env = {key: value for key, value in os.environ.items() if not key.startswith("LATTICE_")}
    env |= {"HOME": str(home), "PATH": f"{os.path.dirname(sys.executable)}:{env['PATH']}"}  # noqa: PTH120  a list of folders
    return subprocess.Popen(
        ["bash", "-c", f"exec {shell_line(line)}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
        cwd=home,
    )


def finish(process, text=None):
    out, err = process.communicate(text, timeout=200)
    assert process.returncode == 0, err
    return out, err


def events(out):
    return [json.loads(line.removeprefix("@@lattice ")) for line in out.splitlines()]


def wait_for_port_11435():
    end = time.monotonic() + 120
    while True:
        try:
            socket.create_connection(("127.0.0.1", 11435)).close()
        except OSError:
            assert time.monotonic() < end, "the server did not come up on port 11435"
            time.sleep(0.1)
        else:
            return


@pytest.mark.parametrize("line", SERVE)
def test_the_servers_command_line_and_its_curl(home, line):
    assert shutil.which("curl")
    server = start(home, line)
    try:
        assert json.loads(server.stdout.readline().removeprefix("@@lattice ")) == {"ev": "ready", "port": 11435}
        wait_for_port_11435()
        answer = subprocess.run(["bash", "-c", CURL], capture_output=True, text=True, timeout=200)
    finally:
        server.terminate()
        out, err = server.communicate(timeout=30)
    assert answer.returncode == 0, err
    chunks = answer.stdout.strip().split("\n\n")
    assert chunks[-1] == "data: [DONE]"
    deltas = [json.loads(chunk.removeprefix("data: "))["choices"][0] for chunk in chunks[:-1]]
    assert deltas[0]["delta"] == {"role": "assistant"}
    assert "".join(choice["delta"].get("content", "") for choice in deltas)
    assert deltas[-1]["finish_reason"] in {"stop", "length"}
    requests = [event for event in events(out) if event["ev"] == "http_request"]
    assert [(event["status"], event["stream"]) for event in requests if event["method"] == "POST"] == [(200, True)]
    assert server.returncode == 0


@pytest.mark.parametrize("line", ONE_SHOT)
def test_one_prompt_as_json_lines(home, line):
    out, _ = finish(start(home, line))
    *tokens, done = events(out)
    assert all(event["ev"] == "gen_token" for event in (*tokens, done))
    assert [event["done"] for event in tokens] == [False] * len(tokens)
    assert {"token", "done", "tok_s", "ttft_ms", "prompt_tokens", "gen_tokens", "total_ms"} <= done.keys()
    assert done["done"] is True
    assert 0 < done["gen_tokens"] <= 64


def test_requests_as_json_lines(home):
    out, _ = finish(start(home, JSON_SERVE), f"{REQUEST}\n{REQUEST}\n")
    ready, *rest = events(out)
    assert ready == {"ev": "ready"}
    ends = [index for index, event in enumerate(rest) if event["done"]]
    assert len(ends) == 2
    first, second = rest[: ends[0]], rest[ends[0] + 1 : ends[1]]
    assert "".join(event["token"] for event in first)
    assert [event["token"] for event in first] == [event["token"] for event in second]


def test_the_conversation_in_the_terminal(home):
    out, err = finish(start(home, REPL), "hi\n\n")
    assert out.startswith("> ")
    assert "prompt +" in err
    assert "tok/s" in err
