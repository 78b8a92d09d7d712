"""How the contract tests talk to an engine."""

import time

from lattice_core.types import Delta, GenerationRequest


def ask(text, **fields):
    return GenerationRequest(prompt=text, **fields)


def text_of(events):
    return "".join(event.text for event in events if isinstance(event, Delta))


def wait_until(condition, seconds=10.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition did not come true in time"
        time.sleep(0.002)


def answer(engine, text="[[say:ok]]", **fields):
    return text_of(list(engine.submit(ask(text, **fields))))
