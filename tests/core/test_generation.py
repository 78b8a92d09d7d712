"""Both ends of a request's events: order, one terminal event, waiting in threads and in event loops."""

import asyncio
import threading

from lattice_core.generation import Generation
from lattice_core.types import Cancelled, Delta, Done, FinishReason, Progress, Started, Timings, Usage

DONE = Done(FinishReason.STOP, Usage(1, 1), Timings())


def make(wakes=None):
    return Generation(1, 1, lambda: wakes.append(1) if wakes is not None else None)


def test_nothing_follows_the_terminal_event():
    generation = make()
    for event in (Started(1), DONE, Delta("late"), Cancelled()):
        generation.emit(event)
    assert list(generation) == [Started(1), DONE]
    assert list(generation) == []


def test_only_the_newest_progress_is_kept():
    generation = make()
    for done in (1, 2, 3):
        generation.emit(Progress(done, 3))
    generation.emit(DONE)
    assert list(generation) == [Progress(3, 3), DONE]


def test_deltas_of_different_channels_do_not_join():
    generation = make()
    for _ in range(100):
        generation.emit(Delta("a", (1,), "content"))
        generation.emit(Delta("b", (2,), "reasoning"))
    generation.emit(DONE)
    texts = {"content": "", "reasoning": ""}
    for event in generation:
        if isinstance(event, Delta):
            texts[event.channel] += event.text
    assert texts == {"content": "a" * 100, "reasoning": "b" * 100}


def test_a_reader_waits_for_what_another_thread_puts_in():
    generation = make()
    read = []
    reader = threading.Thread(target=lambda: read.extend(generation))
    reader.start()
    generation.emit(Started(1))
    generation.emit(DONE)
    reader.join(5)
    assert read == [Started(1), DONE]


def test_a_timeout_brings_nothing_and_loses_nothing():
    generation = make()
    assert generation.next(timeout=0.01) is None
    generation.emit(DONE)
    assert generation.next(timeout=0.01) == DONE


def test_an_event_loop_reads_what_another_thread_puts_in():
    generation = make()

    def produce():
        for number in range(200):
            generation.emit(Delta(str(number % 10), (number,)))
        generation.emit(DONE)

    async def consume():
        threading.Thread(target=produce).start()
        return [event async for event in generation]

    events = asyncio.run(consume())
    assert "".join(event.text for event in events[:-1]) == "".join(str(number % 10) for number in range(200))
    assert events[-1] == DONE


def test_events_after_the_loop_has_closed_cancel_the_generation():
    generation = make()

    async def begin():
        iterator = generation.__aiter__()
        task = asyncio.ensure_future(anext(iterator))
        await asyncio.sleep(0)
        return iterator, task

    loop = asyncio.new_event_loop()
    iterator, task = loop.run_until_complete(begin())
    task.cancel()
    listener = generation._listener
    loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
    loop.run_until_complete(iterator.aclose())
    loop.close()
    listener()
    assert generation.cancelled


def test_cancel_wakes_the_device_thread_once():
    wakes = []
    generation = make(wakes)
    generation.cancel()
    generation.cancel()
    assert (generation.cancelled, wakes) == (True, [1])


def test_leaving_the_context_cancels_what_has_not_ended():
    with make() as running:
        pass
    with make() as ended:
        ended.emit(DONE)
    assert (running.cancelled, ended.cancelled) == (True, False)


def test_reading_up_wakes_a_row_that_was_paused():
    wakes = []
    generation = make(wakes)
    generation.emit(Delta("a", (1,)))
    generation.emit(Delta("b", (2,)))
    generation.paused = True
    generation.next()
    assert wakes == []
    generation.next()
    assert wakes == [1]
