"""What is measured: prompts, lengths and how often. Imports the standard library only; all processes of a run share it."""

from __future__ import annotations

import itertools
import json
import statistics
import time
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TEXT = """
The keeper of the northern lighthouse had a habit of writing everything down. Every evening, before the lamp was lit, she
opened a grey book and noted the wind, the height of the waves and the ships that had passed. In the first winter the book
was nearly empty, because fog lay on the water for weeks and nothing could be seen from the gallery. She wrote about the
sounds instead: the bell of the buoy, the crying of the gulls, the slow engine of the mail boat that came every second
Tuesday with flour, oil and letters. When spring came she counted birds. There were terns on the southern rocks and a pair
of ravens in the old chapel, and once a white owl sat on the rail of the gallery for a whole afternoon and watched her work.

Visitors were rare. A teacher from the mainland came with eleven children who wanted to know how the lamp turned, and she
showed them the clockwork, the weights in the shaft and the lens that stood taller than the tallest of them. A man who
repaired clocks stayed for three days, because the storm did not let him go, and cleaned every wheel of the machine while
he waited. He told her that the clockwork had been made by his grandfather, and that there were only four of its kind. Two
of them stood in museums and one had been lost with a ship. She wrote his story into the grey book as well, with a small
drawing of the wheel that he had mended, and he signed his name under it before the mail boat took him back.

In the seventh year an engineer brought a new lamp. It needed no oil and no weights, he said, and it would light itself when
the sun went down. She helped him to carry the boxes up the stairs and held the ladder while he worked. In the evening they
sat on the gallery and saw the new light go round, whiter and faster than the old one. The engineer asked what she would do
now that the lamp did not need her. She thought about it for a long time. The birds would still have to be counted, she
said, and the wind would have to be written down, and somebody had to be there when the children came again. So she stayed,
and the grey books stood in a row on the shelf above the stove, one for every year, and the twentieth was as full as the
first had been empty. On clear nights the crews of the fishing boats could see two lights on the cape: the great white one
that turned, and below it, in the window of the kitchen, a small yellow one that did not move.
"""

STREAMS = 8
REPEATS = 3
ENOUGH_SECONDS = 25.0


class Workload(NamedTuple):
    """Token ids of the prompts, and the numbers of tokens to generate. Without ``streams`` only one sequence is measured."""

    short: list[int]
    long: list[int]
    streams: list[list[int]]
    decode: int = 32
    stream_decode: int = 24


def make(ids: list[int], short: int = 128, long: int = 512, stream: int = 32) -> Workload:
    """Cut the prompts from the ids of ``TEXT``: streams get places of their own, so that no prefix is shared."""
    if len(ids) < long:
        raise SystemExit(f"the text has {len(ids)} tokens, the longest prompt needs {long}")
    step = (len(ids) - stream) // (STREAMS + 1)
    return Workload(ids[:short], ids[:long], [ids[(n + 1) * step : (n + 1) * step + stream] for n in range(STREAMS)])


def save(workload: Workload, path: Path) -> None:
    """Write it for another process."""
    path.write_text(json.dumps(workload._asdict()), encoding="utf-8")


def load(path: Path) -> Workload:
    """Read what ``save`` wrote."""
    return Workload(**json.loads(path.read_text(encoding="utf-8")))


_numbers = itertools.count(1000)


def fresh(prompt: list[int]) -> list[int]:
    """The prompt with a first token that no prompt had before, so that a cache of prompts helps nobody."""
    return [next(_numbers), *prompt[1:]]


def timed(work: Callable[[], Any], repeats: int = REPEATS) -> list[float]:
    """Seconds of each of ``repeats`` calls; fewer, but at least one, when another would take the sum past 25 s."""
    seconds: list[float] = []
    while len(seconds) < repeats and sum(seconds) + max(seconds, default=0.0) <= ENOUGH_SECONDS:
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return seconds


def rates(workload: Workload, first: list[float], whole: list[float], long: list[float], lookahead: int) -> dict[str, Any]:
    """Tokens per second out of the seconds for one token and for ``decode`` more after the short prompt, one after the long.

    A runner that begins ``lookahead`` further steps before it hands out a token is not charged for them in its prefill.
    """
    step = (statistics.median(whole) - statistics.median(first)) / workload.decode
    if step <= 0:
        raise SystemExit(f"{1 + workload.decode} tokens took no longer than one: the machine is too busy to measure on")
    return {
        "prefill_short": len(workload.short) / (statistics.median(first) - lookahead * step),
        "prefill_long": len(workload.long) / (statistics.median(long) - lookahead * step),
        "decode": 1 / step,
        "runs": min(len(first), len(whole), len(long)),
    }


def measure(
    workload: Workload,
    one: Callable[[list[int], int], list[int]],
    many: Callable[[list[list[int]], int], None],
    lookahead: int,
) -> dict[str, Any]:
    """All figures of one runner: ``one(prompt, tokens)`` makes tokens, ``many(prompts, tokens)`` does so for all at once."""

    def streams(count: int) -> float:
        prompts = workload.streams[:count]
        seconds = timed(lambda: many([fresh(prompt) for prompt in prompts], workload.stream_decode))
        return count * workload.stream_decode / statistics.median(seconds)

    one(workload.short[:16], 4)
    first = timed(lambda: one(fresh(workload.short), 1))
    whole = timed(lambda: one(fresh(workload.short), 1 + workload.decode))
    long = timed(lambda: one(fresh(workload.long), 1))
    answer = rates(workload, first, whole, long, lookahead)
    answer["tokens"] = one(workload.short[:32], 16)
    if workload.streams:
        many([workload.short[:8]] * 2, 2)
        for count in (1, len(workload.streams)):
            answer[f"streams_{count}"] = streams(count)
    return answer
