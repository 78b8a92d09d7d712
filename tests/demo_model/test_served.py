"""The demo model over real wires: a server process, the OpenAI client, curl, and the JSON-lines pipe."""

import json
import re
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import openai
import pytest

pytestmark = [pytest.mark.model, pytest.mark.timeout(600)]

REFERENCE = json.loads((Path(__file__).parent.parent / "data" / "smollm2-greedy.json").read_text())
GREEDY = {"temperature": 0, "repetition_penalty": 1.0}
FRANCE = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture(scope="module")
def server(start_lattice, smollm2_path):
    process = start_lattice("serve", "--model", str(smollm2_path.parent), "--port", "0", "--max-queue", "64")
    process.url = f"http://127.0.0.1:{process.event('ready', timeout=120)['port']}"
    return process


def client(server):
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)


def complete(server, content, max_tokens=40):
    body = {"messages": [{"role": "user", "content": content}], "max_tokens": max_tokens, **GREEDY}
    answer = httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=300)
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]["message"]["content"]


def curl(server, body):
    command = ["curl", "-sS", "-N", f"{server.url}/v1/chat/completions", "-H", "content-type: application/json", "-d", body]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_curl_gets_a_sensible_answer(server):
    answer = json.loads(curl(server, json.dumps({"model": "lattice", "messages": FRANCE, **GREEDY})))
    assert answer["choices"][0]["message"]["content"] == "The capital of France is Paris."
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["usage"] == {"prompt_tokens": 37, "completion_tokens": 7, "total_tokens": 44}


def test_curl_gets_a_stream(server):
    lines = curl(server, json.dumps({"messages": FRANCE, "stream": True, **GREEDY})).split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]
    text = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)
    assert text == "The capital of France is Paris."


@pytest.mark.parametrize("stream", [False, True])
def test_the_openai_client_gets_a_sensible_answer(server, stream):
    arguments = {"model": "lattice", "messages": FRANCE, "temperature": 0, "extra_body": {"repetition_penalty": 1.0}}
    answer = client(server).chat.completions.create(**arguments, stream=stream)
    pieces = [chunk.choices[0].delta for chunk in answer] if stream else [answer.choices[0].message]
    text = "".join(piece.content or "" for piece in pieces)
    assert "Paris" in text


def test_the_seeds_defaults_give_english(server):
    text = client(server).chat.completions.create(model="lattice", messages=FRANCE, max_tokens=40, seed=1).choices[0]
    assert len(re.findall(r"[A-Za-z]+", text.message.content)) >= 5


def test_sixteen_requests_at_once_get_the_texts_of_one_by_one(server):
    prompts = [f"{case['user']} ({number})" for number in range(3) for case in REFERENCE["cases"]][:16]
    alone = [complete(server, prompt) for prompt in prompts]
    together = [None] * len(prompts)

    def ask(number):
        together[number] = complete(server, prompts[number])

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(prompts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together == alone


def test_a_seed_repeats_its_answer_also_beside_others(server):
    def ask(seed, out=None):
        answer = client(server).chat.completions.create(
            model="lattice", messages=[{"role": "user", "content": "Invent a name for a cat."}], max_tokens=12, seed=seed
        )
        text = answer.choices[0].message.content
        if out is not None:
            out.append(text)
        return text

    first = ask(5)
    beside = []
    threads = [threading.Thread(target=ask, args=(seed, beside)) for seed in (6, 7, 8)]
    for thread in threads:
        thread.start()
    again = ask(5)
    for thread in threads:
        thread.join()
    assert again == first
    assert len({first, *beside}) > 1


@pytest.mark.parametrize("case", REFERENCE["cases"], ids=[case["user"][:30] for case in REFERENCE["cases"]])
def test_greedy_tokens_equal_the_reference(pipe, case):
    prompt = f"<|im_start|>user\n{case['user']}<|im_end|>\n<|im_start|>assistant\n"
    system = "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
    wanted = [token for token in case["greedy_ids"] if token != 2]
    pipe.send(json.dumps({"prompt": system + prompt, "max_tokens": len(case["greedy_ids"])}))
    ids = []
    while not (event := pipe.event("gen_token", timeout=300))["done"]:
        ids += event["token_ids"] if "token_ids" in event else [event["token_id"]]
    assert (ids, event["prompt_tokens"]) == (wanted, len(case["prompt_ids"]))


@pytest.fixture(scope="module")
def pipe(start_lattice, smollm2_path):
    process = start_lattice(
        *("run", "--json", "--serve", "--model", str(smollm2_path), "--temperature", "0", "--repetition-penalty", "1"),
        stdin=subprocess.PIPE,
    )
    process.event("ready", timeout=120)
    return process


@pytest.mark.slow
def test_fifty_clients_that_leave_at_random_moments_leave_nothing_behind(smollm2_path):
    script = Path(__file__).with_name("leaving_clients.py")
    command = [sys.executable, str(script), str(smollm2_path)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert run.returncode == 0, run.stderr
    result = json.loads(run.stdout.splitlines()[-1])
    print(result)
    assert result["live_states"] == 0
    assert (result["queued"], result["running"], result["reserved_rows"]) == (0, 0, 0)
    assert result["answer"] == "The capital of France is Paris."
    assert abs(result["device_after"] / result["device_before"] - 1) < 0.02
    assert result["resident_after"] / result["resident_before"] - 1 < 0.02
