from __future__ import annotations

import threading
import time

import pytest

from lattice_chat import template_sandbox
from lattice_chat.template_format import TemplateFormat
from lattice_chat.template_limits import CHARACTERS, Clock, LimitError, bounded_join, weigh
from lattice_core.errors import RequestError
from lattice_core.types import Message

HI = [Message("user", "hi")]

GROWING = "{%% set ns = namespace(x='ab') %%}{%% for i in range(60) %%}{%% set ns.x = %s %%}{%% endfor %%}{{ ns.x }}"


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'a' * 10000000000 }}",
        "{{ [1] * 10000000000 }}",
        "{{ 9 ** 99999999999 }}",
        "{{ 'a' | center(1000000000) }}",
        "{{ 'a'.ljust(1000000000) }}",
        "{{ '%1000000000d' % 3 }}",
        "{{ '%*d' % (1000000000, 3) }}",
        "{{ '%1000000000d' | format(3) }}",
        "{{ '{:>1000000000}'.format('a') }}",
        "{{ '{:>{w}}'.format('a', w=1000000000) }}",
        "{{ range(100000) | map('string') | join('a' * 100) }}",
        "{{ ('a' * 4000).join('b' * 4000) }}",
        GROWING % "ns.x ~ ns.x",
        GROWING % "ns.x + ns.x",
        GROWING % "[ns.x, ns.x]",
        GROWING % "ns.x | replace('a', 'aaaaaaaaaaaaaaaa')",
        GROWING % "ns.x.replace('a', 'aaaaaaaaaaaaaaaa')",
        "{% set x %}{% for i in range(100000) %}" + "a" * 1000 + "{% endfor %}{% endset %}",
        "{% macro m() %}{% for i in range(100000) %}" + "a" * 1000 + "{% endfor %}{% endmacro %}{{ m() }}",
        "{% for i in range(100000) %}" + "a" * 1000 + "{% endfor %}",
    ],
)
def test_nothing_that_a_template_makes_grows_without_bound(tokenizer, source):
    with pytest.raises(RequestError, match="the chat template was stopped"):
        TemplateFormat(source, tokenizer).text(HI, {})


@pytest.mark.parametrize(
    "source",
    [
        "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
        "{% for x in [1, 1] recursive %}{% if loop.depth < 60 %}{{ loop([1, 1]) }}{% endif %}{% endfor %}",
        "{% for a in range(100000) %}{% set x = range(100000) | list | length %}{% endfor %}",
    ],
)
def test_a_template_that_does_not_end_is_stopped(tokenizer, source, monkeypatch):
    monkeypatch.setattr(template_sandbox, "SECONDS", 0.2)
    with pytest.raises(RequestError, match=r"it ran for more than 0\.2 s"):
        TemplateFormat(source, tokenizer).text(HI, {})


def test_waiting_for_the_processor_is_not_counted(tokenizer, monkeypatch):
    monkeypatch.setattr(template_sandbox, "SECONDS", 0.05)
    chat = TemplateFormat("{% for a in [1, 2] %}{{ pause() }}{% endfor %}done", tokenizer)
    chat._sandbox.globals["pause"] = lambda: threading.Event().wait(0.1) or ""
    assert chat.text(HI, {}) == "done"


def test_renderings_on_several_threads_have_a_clock_each(tokenizer, monkeypatch):
    monkeypatch.setattr(template_sandbox, "SECONDS", 0.3)
    chat = TemplateFormat("{% for a in range(n) %}{% for b in range(n) %}{% endfor %}{% endfor %}done", tokenizer)
    outcomes = {}

    def render(name, n):
        try:
            outcomes[name] = chat.text(HI, {"n": n})
        except RequestError as error:
            outcomes[name] = error.message

    threads = [threading.Thread(target=render, args=item) for item in (("long", 100000), ("short", 3))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes["short"] == "done"
    assert "0.3 s" in outcomes["long"]


def test_ordinary_long_messages_are_within_the_limits(tokenizer):
    long = "word " * 200_000
    template = "{% for m in messages %}{{ m.content | trim }}{{ m.content | replace('w', 'W') | length }}{% endfor %}"
    assert len(TemplateFormat(template, tokenizer).text([Message("user", long)] * 2, {})) > 2_000_000


def test_padding_indents_and_sums_of_ordinary_size_work(tokenizer):
    source = (
        "{{ 'a' | center(5) }}|{{ 'b\\nc' | indent(2) }}|{{ '%03d' % 7 }}|{{ '{:>3}'.format(1) }}|{{ [1, 2] | sum }}"
        "|{{ messages | sum(attribute='n', start=1) }}|{{ 'a'.ljust(3) }}|{{ ['x', 'y'] | join(', ') }}"
    )
    chat = TemplateFormat(source.replace("messages", "rows"), tokenizer)
    assert chat.text(HI, {"rows": [{"n": 2}]}) == "  a  |b\n  c|007|  1|3|3|a  |x, y"


def test_a_value_weighs_its_characters_and_parts():
    assert weigh("abc") == 4
    assert weigh({"a": ["b", 1]}) == 1 + 2 + 1 + 2 + 1
    knot = []
    knot.append(knot)
    with pytest.raises(LimitError, match=str(CHARACTERS)):
        weigh(knot)


def test_a_join_stops_at_the_limit_while_it_reads():
    taken = []

    def pieces():
        while True:
            taken.append(None)
            yield "x" * (CHARACTERS // 4)

    with pytest.raises(LimitError):
        bounded_join(pieces())
    assert len(taken) == 5


def test_a_clock_stops_after_its_time():
    clock = Clock(0.01)
    clock.tick()
    end = time.thread_time() + 0.02
    while time.thread_time() < end:
        pass
    with pytest.raises(LimitError, match=r"0\.01 s"):
        clock.tick()
