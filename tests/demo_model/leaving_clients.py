"""Runs the HTTP server over the demo model in this process, lets 50 clients leave, and prints what is left as JSON.

Run by ``test_served.py`` in a process of its own, so that it can look at the engine and at the device's memory.
"""

import gc
import json
import random
import socket
import sys
import threading
import time
from pathlib import Path

import httpx

from lattice_core.cli.one_heap import keep_to_one_heap
from lattice_core.descriptors import Settings
from lattice_core.engine import Engine, EngineConfig
from lattice_core.types import Limits
from lattice_gguf.loader import GgufLoader
from lattice_mlx.backend import MlxBackend

CLIENTS = 50
CORE = {
    "host": "127.0.0.1",
    "max-tokens": 512,
    "temperature": 0.0,
    "top-k": 50,
    "top-p": 0.9,
    "repetition-penalty": 1.0,
    "seed": None,
    "drain-seconds": 5.0,
    "debug": False,
}


class Stop:
    def __init__(self):
        self._event, self._callbacks = threading.Event(), []

    def is_set(self):
        return self._event.is_set()

    def wait(self, timeout=None):
        return self._event.wait(timeout)

    def set(self):
        self._event.set()
        for callback in self._callbacks:
            callback()

    def add_callback(self, callback):
        self._callbacks.append(callback)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def ask(url, content, **fields):
    body = {"messages": [{"role": "user", "content": content}], **fields}
    answer = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=300)
    answer.raise_for_status()
    return answer.json()["choices"][0]["message"]["content"]


def leave(port, number, choose):
    """One client: sends a whole request, reads for a random while or not at all, and closes the socket."""
    content = "Tell me a very long story. " * (1 + choose.randrange(12))
    body = json.dumps({"messages": [{"role": "user", "content": content}], "stream": number % 2 == 0, "max_tokens": 400})
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\n"
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(f"{head}content-length: {len(body)}\r\n\r\n{body}".encode())
        connection.settimeout(choose.uniform(0.0, 4.0) + 0.001)
        try:
            while connection.recv(4096):
                if choose.random() < 0.05:
                    break
        except TimeoutError:
            pass


def crowd(port, seed):
    threads = [threading.Thread(target=leave, args=(port, n, random.Random(seed + n))) for n in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def settle(engine):
    end = time.monotonic() + 60
    while (stats := engine.stats()).live_states or stats.queued or stats.running:
        if time.monotonic() > end:
            break
        time.sleep(0.01)
    return stats


def measure(engine):
    import mlx.core as mx  # noqa: PLC0415  the backend loads a fast BLAS before MLX

    settle(engine)
    # The last state is gone before its memory is given back: what runs between two steps runs after both.
    engine._worker.between_steps(lambda _model: None).result()
    gc.collect()
    mx.clear_cache()
    return mx.get_active_memory(), int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def main():
    keep_to_one_heap()  # as the command does
    model = Path(sys.argv[1])
    from lattice_chat.template_format import create  # noqa: PLC0415
    from lattice_openai.server import OpenAIFrontend  # noqa: PLC0415
    from lattice_samplers.default_sampler import DefaultSampler  # noqa: PLC0415

    checkpoint = GgufLoader(Settings()).open(model)
    engine = Engine.start(
        checkpoint=checkpoint,
        backend=lambda: MlxBackend(Settings()),
        sampler=lambda: DefaultSampler(Settings()),
        chat_format=lambda vocabulary: create(checkpoint.chat_template, vocabulary, Settings()),
        config=EngineConfig(model_id="smollm2-135m", limits=Limits(max_batch=8), max_queue=64),
    )
    port, stop = free_port(), Stop()
    frontend = OpenAIFrontend(Settings(core={**CORE, "port": port}))
    server = threading.Thread(target=frontend.serve, args=(engine, stop))
    server.start()
    url = f"http://127.0.0.1:{port}"
    while True:
        try:
            httpx.get(f"{url}/health").raise_for_status()
            break
        except httpx.ConnectError:
            time.sleep(0.05)
    crowd(port, 1000)  # the first crowd warms allocators, threads and buffers up
    device_before, resident_before = measure(engine)
    crowd(port, 2000)
    device_after, resident_after = measure(engine)
    stats = engine.stats()
    answer = ask(url, "What is the capital of France?", max_tokens=20)
    settle(engine)
    result = {
        "live_states": stats.live_states,
        "queued": stats.queued,
        "running": stats.running,
        "reserved_rows": stats.reserved_bytes - engine.model_info.nbytes,
        "cancelled": stats.cancelled,
        "finished": stats.finished,
        "answer": answer,
        "device_before": device_before,
        "device_after": device_after,
        "resident_before": resident_before,
        "resident_after": resident_after,
    }
    stop.set()
    server.join(30)
    engine.close()
    print(json.dumps(result))


if __name__ == "__main__":
    main()
