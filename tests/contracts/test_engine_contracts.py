"""The engine's contracts, each with a scripted model: with and without a step launched ahead of the one that is read."""

import threading
import time

import pytest

from lattice_conformance.fakes import HostGreedySampler, MaskIgnoringSampler, RaisingSampler
from lattice_conformance.gate import Gate
from lattice_conformance.harness import scripted_engine
from lattice_conformance.scripted_backend import ScriptedBackend
from lattice_core.errors import (
    BlockedConstraintError,
    ContextLengthExceededError,
    EngineDiedError,
    InsufficientMemoryError,
    LatticeError,
    ModelError,
    RequestError,
    SamplerError,
    ServerBusyError,
    ShuttingDownError,
    StepError,
    UnknownModelError,
    UnsupportedFeatureError,
)
from lattice_core.types import (
    Cancelled,
    Delta,
    Done,
    Failed,
    FinishReason,
    GenerationRequest,
    GrammarRequest,
    Limits,
    Message,
    SamplingParams,
    Started,
)

TERMINAL = (Done, Cancelled, Failed)


@pytest.fixture(params=[False, True], ids=["step by step", "one step ahead"])
def lookahead(request):
    return request.param


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


# 1 ---------------------------------------------------------------------------------------------------------------------


def test_a_request_cancelled_while_queued_never_reaches_the_model(lookahead):
    gate = Gate()
    backend = ScriptedBackend(gate=gate, lookahead=lookahead)
    with scripted_engine(backend=backend, limits=Limits(max_batch=1)) as engine:
        first = engine.submit(ask("[[repeat:5]]"))
        assert gate.wait_blocked()
        second = engine.submit(ask("never seen"))
        second.cancel()
        third = engine.submit(ask("[[say:third]]"))
        gate.open()
        assert [type(event) for event in second] == [Cancelled]
        assert text_of(list(third)) == "third"
        assert text_of(list(first)) == "xxxxx"
        assert not backend.model.log.saw("never seen")


# 2, 3 ------------------------------------------------------------------------------------------------------------------


def test_cancel_between_prefill_chunks_stops_before_the_prompt_ends(lookahead):
    backend = ScriptedBackend(lookahead=lookahead)
    with scripted_engine(backend=backend, prefill_chunk=16) as engine:
        generation = engine.submit(ask("[[prefill-delay:20]]" + "long " * 400))
        wait_until(lambda: backend.model.log.forward_calls >= 2)
        generation.cancel()
        events = list(generation)
        assert isinstance(events[-1], Cancelled)
        assert text_of(events) == ""
        assert backend.model.log.forward_calls < 30
        assert answer(engine) == "ok"


def test_a_cancelled_generation_stops_within_one_step_and_the_next_runs(lookahead):
    gate = Gate()
    backend = ScriptedBackend(gate=gate, lookahead=lookahead)
    with scripted_engine(backend=backend) as engine:
        generation = engine.submit(ask("[[repeat:500]]"))
        gate.permit(5)
        assert gate.wait_blocked()
        calls = backend.model.log.forward_calls
        generation.cancel()
        gate.permit(1)
        events = list(generation)
        assert isinstance(events[-1], Cancelled)
        assert backend.model.log.forward_calls <= calls + 1
        gate.open()
        assert answer(engine) == "ok"
        wait_until(lambda: engine.stats().live_states == 0)


def test_cancel_needs_no_token_to_flow():
    with scripted_engine() as engine:
        generation = engine.submit(ask("[[repeat:3000]]"))
        # Nobody reads: the events stay where they are, and cancel is seen all the same.
        generation.cancel()
        wait_until(lambda: engine.stats().running == 0)
        assert isinstance(list(generation)[-1], Cancelled)


# 4, 5 ------------------------------------------------------------------------------------------------------------------


def test_a_failing_generation_is_failed_with_its_cause_and_the_next_is_served(lookahead):
    with scripted_engine(backend=ScriptedBackend(lookahead=lookahead)) as engine:
        events = list(engine.submit(ask("[[say:abcdef]][[fail:3]]")))
        assert isinstance(events[-1], Failed)
        assert isinstance(events[-1].error, StepError)
        assert "reply token 3" in events[-1].error.detail
        assert text_of(events) == "abc"
        assert sum(isinstance(event, TERMINAL) for event in events) == 1
        assert answer(engine) == "ok"


def test_a_failed_step_fails_the_active_rows_and_frees_everything(lookahead):
    gate = Gate()
    backend = ScriptedBackend(gate=gate, lookahead=lookahead)
    with scripted_engine(backend=backend, limits=Limits(max_batch=4)) as engine:
        neighbour = engine.submit(ask("[[repeat:50]]"))
        assert gate.wait_blocked()
        poisoned = engine.submit(ask("[[fail-prefill]]"))
        gate.open()
        assert isinstance(list(poisoned)[-1], Failed)
        assert isinstance(list(neighbour)[-1], Failed | Done)
        wait_until(lambda: engine.stats().live_states == 0)
        assert engine.stats().reserved_bytes == 0
        assert answer(engine) == "ok"


def test_a_row_that_ended_before_its_neighbour_broke_the_step_has_ended_well():
    """The step that was launched ahead fails; what the step before made still counts."""
    with scripted_engine(backend=ScriptedBackend(lookahead=True)) as engine:
        gate = threading.Barrier(2)

        def submit(text, out):
            gate.wait()
            out.append(list(engine.submit(ask(text))))

        short, failing = [], []
        threads = [
            threading.Thread(target=submit, args=("[[say:ab]]", short)),
            threading.Thread(target=submit, args=("[[repeat:9]][[fail:9]]", failing)),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert isinstance(failing[0][-1], Failed)
        assert text_of(failing[0]) == "x" * 9
        assert isinstance(short[0][-1], Done)
        assert text_of(short[0]) == "ab"


def test_a_sampler_that_raises_fails_its_row_only():
    class SometimesRaises(RaisingSampler):
        def new_state(self, params, prompt, vocab_size):
            return [0] if bytes(prompt).startswith(b"bad") else [-1000]

    with scripted_engine(sampler=SometimesRaises) as engine:
        bad, good = engine.submit(ask("bad [[repeat:9]]")), engine.submit(ask("[[repeat:9]]"))
        bad_events, good_events = list(bad), list(good)
        assert isinstance(bad_events[-1].error, SamplerError)
        assert text_of(bad_events) == "xx"
        assert (type(good_events[-1]), text_of(good_events)) == (Done, "x" * 9)
        assert engine.health().ok


def test_a_batch_sampler_that_raises_for_one_row_fails_that_row_only(lookahead):
    class BatchRaises:
        def new_state(self, params, prompt, vocab_size):
            return bytes(prompt).startswith(b"bad")

        def sample(self, logits, state, u):
            raise AssertionError

        def sample_batch(self, logits, states, u):
            if any(states):
                msg = "one of the rows is bad"
                raise ValueError(msg)
            return logits.argmax(axis=-1)

    backend = ScriptedBackend(lookahead=lookahead)
    with scripted_engine(backend=backend, sampler=BatchRaises) as engine:
        rows = [engine.submit(ask(text)) for text in ("[[repeat:9]]", "bad", "[[repeat:7]]")]
        events = [list(row) for row in rows]
        assert [type(row[-1]) for row in events] == [Done, Failed, Done]
        assert [text_of(row) for row in events] == ["x" * 9, "", "x" * 7]


def test_three_failed_steps_in_a_row_end_the_engine():
    with scripted_engine(backend=ScriptedBackend(fail="steps")) as engine:
        deaths = []
        engine.on_death(deaths.append)
        errors = [list(engine.submit(ask("x")))[-1] for _ in range(2)]
        assert all(isinstance(event.error, StepError) for event in errors)
        assert engine.health().ok
        assert isinstance(list(engine.submit(ask("x")))[-1], Failed)
        wait_until(lambda: engine.dead is not None)
        assert (engine.health().ok, engine.health().status) == (False, "dead")
        with pytest.raises(EngineDiedError):
            engine.submit(ask("x"))
        wait_until(lambda: deaths == [engine.dead])
        late = []
        engine.on_death(late.append)
        assert late == deaths


def test_when_the_engine_dies_every_pending_request_fails():
    with scripted_engine(backend=ScriptedBackend(fail="steps"), limits=Limits(max_batch=1)) as engine:
        generations = [engine.submit(ask(f"request {number}")) for number in range(1)]
        for _ in range(8):
            try:
                generations.append(engine.submit(ask("more")))
            except EngineDiedError:
                break
        assert {type(list(generation)[-1]) for generation in generations} == {Failed}


def test_a_good_step_between_failures_keeps_the_engine_alive():
    with scripted_engine() as engine:
        for _ in range(4):
            assert isinstance(list(engine.submit(ask("[[fail-prefill]]")))[-1], Failed)
            assert answer(engine) == "ok"
        assert engine.health().ok


def test_a_step_that_does_not_end_makes_health_say_so():
    backend = ScriptedBackend()
    with scripted_engine(backend=backend, stall_seconds=0.05) as engine:
        generation = engine.submit(ask("[[hang]]"))
        wait_until(lambda: engine.health().status == "stalled")
        assert not engine.health().ok
        backend.release()
        assert isinstance(list(generation)[-1], Done)
        assert engine.health().ok


# 6 ---------------------------------------------------------------------------------------------------------------------


def test_a_grammar_that_blocks_every_token_fails_the_request(lookahead):
    with scripted_engine(backend=ScriptedBackend(lookahead=lookahead)) as engine:
        blocked = engine.submit(ask("[[say:hello]]", grammar=GrammarRequest("scripted-blocks")))
        neighbour = engine.submit(ask("[[say:hello]]"))
        events = list(blocked)
        assert isinstance(events[-1].error, BlockedConstraintError)
        assert text_of(events) == ""
        assert text_of(list(neighbour)) == "hello"


@pytest.mark.parametrize("sampler", [None, HostGreedySampler])
def test_a_grammar_holds_and_its_neighbours_are_free(lookahead, sampler):
    kinds = {} if sampler is None else {"sampler": sampler}
    with scripted_engine(backend=ScriptedBackend(lookahead=lookahead), **kinds) as engine:
        held = engine.submit(ask("[[say:abcdef]]", grammar=GrammarRequest("scripted-alphabet", "bdz"), max_tokens=6))
        free = engine.submit(ask("[[say:abcdef]]", max_tokens=6))
        held_text, free_text = text_of(list(held)), text_of(list(free))
        assert (set(held_text) <= set("bdz"), len(held_text), free_text) == (True, 6, "abcdef")


def test_a_sampler_that_ignores_the_mask_fails_its_row():
    with scripted_engine(sampler=MaskIgnoringSampler) as engine:
        events = list(engine.submit(ask("[[say:a]]", grammar=GrammarRequest("scripted-alphabet", "a"))))
        assert isinstance(events[-1].error, SamplerError)
        assert text_of(events) == ""


# 7 ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "error", "param"),
    [
        ({"grammar": GrammarRequest("no-such")}, UnsupportedFeatureError, "response_format"),
        ({"model": "other"}, UnknownModelError, "model"),
        ({"max_tokens": 0}, RequestError, "max_tokens"),
        ({"sampling": SamplingParams(temperature=float("nan"))}, RequestError, "temperature"),
        ({"sampling": SamplingParams(temperature=-1)}, RequestError, "temperature"),
        ({"sampling": SamplingParams(top_p=0)}, RequestError, "top_p"),
        ({"sampling": SamplingParams(top_p=1.5)}, RequestError, "top_p"),
        ({"sampling": SamplingParams(top_k=-1)}, RequestError, "top_k"),
        ({"sampling": SamplingParams(repetition_penalty=0)}, RequestError, "repetition_penalty"),
        ({"prompt": ""}, RequestError, "prompt"),
        ({"prompt": (1, 100_000)}, RequestError, "prompt"),
        ({"prompt": None, "messages": ()}, RequestError, "messages"),
        ({"messages": (Message("user", "x"),)}, RequestError, "messages"),
    ],
)
def test_what_cannot_be_honoured_is_an_error_before_work_begins(fields, error, param):
    backend = ScriptedBackend()
    with scripted_engine(backend=backend) as engine:
        with pytest.raises(error) as caught:
            engine.submit(GenerationRequest(**({"prompt": "x"} | fields)))
        assert caught.value.param == param
        assert backend.model.log.forward_calls == 0


def test_a_fault_in_rendering_is_an_error_of_that_request_only():
    class Broken:
        stop_ids = frozenset()

        def render(self, messages, options):
            msg = "template fault"
            raise ZeroDivisionError(msg)

    with scripted_engine() as engine:
        engine._chat_format = Broken()
        with pytest.raises(LatticeError) as caught:
            engine.submit(GenerationRequest(messages=(Message("user", "x"),)))
        assert (caught.value.code, "template fault" in caught.value.detail) == ("internal_error", True)
        assert answer(engine) == "ok"


def test_rendering_has_a_deadline():
    release = threading.Event()

    class Endless:
        stop_ids = frozenset()

        def render(self, messages, options):
            release.wait(30)

    with scripted_engine(prepare_seconds=0.05) as engine:
        engine._chat_format = Endless()
        with pytest.raises(RequestError, match=r"longer than 0\.05 s"):
            engine.submit(GenerationRequest(messages=(Message("user", "x"),)))
        release.set()


# 8, 9 ------------------------------------------------------------------------------------------------------------------


def test_a_rows_output_does_not_depend_on_its_neighbours(lookahead):
    texts = [f"[[say:reply number {number} of many]]" for number in range(12)]
    with scripted_engine(backend=ScriptedBackend(lookahead=lookahead), limits=Limits(max_batch=5)) as engine:
        alone = [answer(engine, text) for text in texts]
        together = [engine.submit(ask(text)) for text in texts]
        assert [text_of(list(generation)) for generation in together] == alone


def test_the_numbers_a_row_draws_depend_on_its_seed_and_position_alone(lookahead):
    drawn = {}

    class Recording:
        def new_state(self, params, prompt, vocab_size):
            return drawn.setdefault((params.seed, len(prompt)), [])

        def sample(self, logits, state, u):
            state.append(u)
            return int(logits.argmax())

    with scripted_engine(backend=ScriptedBackend(lookahead=lookahead), sampler=Recording) as engine:
        same = [SamplingParams(seed=7), SamplingParams(seed=7), SamplingParams(seed=8)]
        prompts = ["[[repeat:5]]", "[[repeat:5]] ", "[[repeat:5]]"]
        rows = [engine.submit(ask(text, sampling=params)) for text, params in zip(prompts, same, strict=True)]
        for row in rows:
            list(row)
        first, second, other = drawn.values()
        assert first == second != other
        assert len(set(first)) == 6
        assert all(0 <= u < 1 for u in first)


# 10 --------------------------------------------------------------------------------------------------------------------


def test_a_prompt_that_fills_the_context_is_refused_with_both_numbers():
    with scripted_engine(limits=Limits(context=64)) as engine:
        with pytest.raises(ContextLengthExceededError, match=r"64 tokens.*64 tokens"):
            engine.submit(ask("x" * 64))
        events = list(engine.submit(ask("[[repeat:99]]" + "y" * 47, max_tokens=50)))
        assert (text_of(events), events[-1].finish_reason) == ("xxxx", FinishReason.LENGTH)


def test_a_huge_max_tokens_costs_nothing_but_the_context():
    with scripted_engine() as engine:
        events = list(engine.submit(ask("[[repeat:3]]", max_tokens=2**40)))
        assert (text_of(events), events[-1].finish_reason) == ("xxx", FinishReason.STOP)


def test_the_queue_is_bounded_and_recovers(lookahead):
    gate = Gate()
    backend = ScriptedBackend(gate=gate, lookahead=lookahead)
    with scripted_engine(backend=backend, limits=Limits(max_batch=1), max_queue=2) as engine:
        running = engine.submit(ask("[[repeat:5]]"))
        assert gate.wait_blocked()
        queued = [engine.submit(ask("[[say:q]]")) for _ in range(2)]
        with pytest.raises(ServerBusyError) as caught:
            engine.submit(ask("x"))
        assert caught.value.retry_after >= 1
        gate.open()
        assert [text_of(list(row)) for row in [running, *queued]] == ["xxxxx", "q", "q"]
        assert answer(engine) == "ok"


def test_an_idle_engine_takes_a_whole_batch_beside_its_queue():
    gate = Gate()
    backend = ScriptedBackend(gate=gate)
    with scripted_engine(backend=backend, limits=Limits(max_batch=3), max_queue=0) as engine:
        rows = [engine.submit(ask("[[say:ok]]")) for _ in range(3)]
        with pytest.raises(ServerBusyError, match="--max-batch 3 may run and --max-queue 0 may wait"):
            engine.submit(ask("x"))
        gate.open()
        assert [text_of(list(row)) for row in rows] == ["ok"] * 3


def test_memory_is_reserved_before_a_row_runs_and_given_back(lookahead):
    gate = Gate()
    backend = ScriptedBackend(gate=gate, lookahead=lookahead)
    with scripted_engine(backend=backend, memory=12_000) as engine:
        # 100 bytes for each token of prompt and answer: the two rows do not fit together.
        first = engine.submit(ask("[[repeat:50]]", max_tokens=50))
        assert gate.wait_blocked()
        second = engine.submit(ask("[[say:second]]", max_tokens=60))
        assert (engine.stats().running, engine.stats().queued) == (1, 1)
        gate.open()
        assert text_of(list(second)) == "second"
        assert isinstance(list(first)[-1], Done)
        wait_until(lambda: engine.stats().reserved_bytes == 0)
        with pytest.raises(InsufficientMemoryError, match="memory limit"):
            engine.submit(ask("x", max_tokens=200))


# 11 --------------------------------------------------------------------------------------------------------------------


def test_a_model_that_cannot_be_loaded_is_reported_before_ready():
    with pytest.raises(ModelError, match="told to fail"), scripted_engine(backend=ScriptedBackend(fail="load")):
        pass


def test_whatever_a_backend_raises_at_load_is_one_model_error():
    class Exits:
        def load(self, checkpoint, limits, progress):
            raise SystemExit(3)

    backend = ScriptedBackend()
    backend.load = Exits().load
    with pytest.raises(ModelError, match="SystemExit"), scripted_engine(backend=backend):
        pass


# 12 --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["grüße, 日本 👩‍👩‍👧!", " leading  and trailing  ", "\n\n    indented\n", "\ufffd"])
def test_deltas_join_to_the_reply_and_hold_whole_characters(lookahead, text):
    with scripted_engine(backend=ScriptedBackend(lookahead=lookahead)) as engine:
        events = list(engine.submit(ask(f"[[say:{text}]]")))
        assert text_of(events) == text
        assert all("\ufffd" not in event.text or "\ufffd" in text for event in events if isinstance(event, Delta))
        tokens = tuple(token for event in events if isinstance(event, Delta) for token in event.token_ids)
        assert bytes(tokens).decode() == text
        assert events[-1].usage.completion_tokens == len(tokens)


def test_a_character_cut_by_the_token_limit_ends_as_one_replacement():
    with scripted_engine() as engine:
        events = list(engine.submit(ask("[[say:日本]]", max_tokens=4)))
        assert (text_of(events), events[-1].finish_reason) == ("日\ufffd", FinishReason.LENGTH)


@pytest.mark.parametrize(
    ("stops", "expected", "reason"),
    [
        (("beta gamma",), "alpha ", FinishReason.STOP),
        (("gamma", "beta"), "alpha ", FinishReason.STOP),
        (("delta!",), "alpha beta gamma delta", FinishReason.STOP),
        (("nothing",), "alpha beta gamma delta", FinishReason.STOP),
        (("a",), "", FinishReason.STOP),
    ],
)
def test_nothing_of_a_stop_string_is_shown(lookahead, stops, expected, reason):
    with scripted_engine(backend=ScriptedBackend(lookahead=lookahead)) as engine:
        events = list(engine.submit(ask("[[say:alpha beta gamma delta]]", stop=stops)))
        assert (text_of(events), events[-1].finish_reason) == (expected, reason)


def test_finish_reasons_tell_stop_from_length(lookahead):
    with scripted_engine(backend=ScriptedBackend(lookahead=lookahead)) as engine:
        for limit, text, reason in [(5, "xxxxx", "length"), (6, "xxxxxx", "length"), (7, "xxxxxx", "stop")]:
            events = list(engine.submit(ask("[[repeat:6]]", max_tokens=limit)))
            assert (text_of(events), events[-1].finish_reason.value) == (text, reason)


# 13 --------------------------------------------------------------------------------------------------------------------


def test_a_slow_reader_pauses_its_row_only_and_loses_nothing():
    with scripted_engine(limits=Limits(context=4096)) as engine:
        slow = engine.submit(ask("[[repeat:3000]]"))
        wait_until(lambda: slow.undelivered >= 1024)
        assert answer(engine) == "ok"
        assert slow.undelivered < 1100
        events = list(slow)
        assert text_of(events) == "x" * 3000
        assert isinstance(events[-1], Done)


def test_deltas_of_a_slow_reader_coalesce():
    with scripted_engine() as engine:
        slow = engine.submit(ask("[[repeat:900]]"))
        wait_until(lambda: slow.terminal is not None)
        events = list(slow)
        assert len(events) < 100
        assert text_of(events) == "x" * 900


def test_a_reader_that_never_comes_back_is_cancelled_after_the_limit():
    with scripted_engine(slow_reader_seconds=0.1) as engine:
        slow = engine.submit(ask("[[repeat:3000]]"))
        wait_until(lambda: isinstance(slow.terminal, Cancelled))
        wait_until(lambda: engine.stats().live_states == 0)
        assert answer(engine) == "ok"


# the loop --------------------------------------------------------------------------------------------------------------


def test_prefill_goes_beside_decode_so_that_neither_starves(lookahead):
    backend = ScriptedBackend(lookahead=lookahead)
    with scripted_engine(backend=backend, prefill_chunk=32) as engine:
        decoding = engine.submit(ask("[[repeat:400]]"))
        events = iter(decoding)
        assert isinstance(next(events), Started)
        next(events)
        prompt = engine.submit(ask("long " * 100 + "[[say:done]]"))
        assert text_of(list(prompt)) == "done"
        list(events)
        mixed = [rows for rows in backend.model.log.forwards if {row.decode for row in rows} == {True, False}]
        assert len(mixed) >= 10
        assert max(sum(len(row.tokens) for row in rows if not row.decode) for rows in mixed) <= 32


def test_rows_join_and_leave_between_steps(lookahead):
    backend = ScriptedBackend(lookahead=lookahead)
    with scripted_engine(backend=backend, limits=Limits(max_batch=8)) as engine:
        rows = [engine.submit(ask(f"[[repeat:{length}]]")) for length in (300, 5, 40, 120)]
        assert [len(text_of(list(row))) for row in rows] == [300, 5, 40, 120]
        widths = {sum(row.decode for row in rows) for rows in backend.model.log.forwards}
        assert {1, 2} <= widths
        assert engine.stats().live_states <= 1


def test_one_row_at_a_time_serves_in_order():
    backend = ScriptedBackend()
    with scripted_engine(backend=backend, limits=Limits(max_batch=1)) as engine:
        rows = [engine.submit(ask(f"[[say:{number}]]")) for number in range(5)]
        assert [text_of(list(row)) for row in rows] == list("01234")
        assert all(len(step) == 1 for step in backend.model.log.forwards)


def test_the_next_step_is_launched_on_a_token_that_is_not_read_yet():
    order = []
    backend = ScriptedBackend(lookahead=True)
    with scripted_engine(backend=backend) as engine:
        model = backend.model
        forward, read = model.forward, model.read
        model.forward = lambda plan: order.append("forward") or forward(plan)
        model.read = lambda tokens: order.append("read") or read(tokens)
        assert answer(engine, "[[say:abc]]") == "abc"
    assert order == ["forward", "forward", "read", "forward", "read", "forward", "read", "forward", "read", "read"]


def test_without_lookahead_no_step_is_wasted_after_the_last_token():
    backend = ScriptedBackend(lookahead=False)
    with scripted_engine(backend=backend) as engine:
        assert answer(engine, "[[say:abc]]") == "abc"
        assert backend.model.log.forward_calls == 4


# the end ---------------------------------------------------------------------------------------------------------------


def test_closing_lets_running_requests_finish_and_refuses_new_ones():
    gate = Gate()
    backend = ScriptedBackend(gate=gate)
    with scripted_engine(backend=backend) as engine:
        running = engine.submit(ask("[[repeat:5]]"))
        assert gate.wait_blocked()
        closer = threading.Thread(target=engine.close, args=(10.0,))
        closer.start()
        wait_until(lambda: engine.health().status == "draining")
        with pytest.raises(ShuttingDownError):
            engine.submit(ask("x"))
        gate.open()
        closer.join(10)
        assert not closer.is_alive()
        assert (text_of(list(running)), type(running.terminal)) == ("xxxxx", Done)


def test_closing_cancels_what_does_not_finish_in_time():
    backend = ScriptedBackend()
    with scripted_engine(backend=backend) as engine:
        running = engine.submit(ask("[[repeat:3000]][[delay:20]]"))
        next(iter(running))
        engine.close(0.05)
        assert isinstance(list(running)[-1], Cancelled)


def test_fifty_clients_that_leave_at_random_moments_leave_nothing_behind(lookahead):
    backend = ScriptedBackend(lookahead=lookahead)
    with scripted_engine(backend=backend, limits=Limits(max_batch=8), max_queue=64, prefill_chunk=16) as engine:
        rows = [engine.submit(ask(f"[[repeat:{30 + 7 * n}]]" + "p" * (n % 5) * 20)) for n in range(50)]
        for number, row in enumerate(rows):
            for _ in range(number % 9):
                row.next(timeout=0.001)
            row.cancel()
        assert all(isinstance(list(row)[-1], Cancelled | Done) for row in rows)
        wait_until(lambda: engine.stats().live_states == 0)
        stats = engine.stats()
        assert (stats.running, stats.queued, stats.reserved_bytes) == (0, 0, 0)
        assert answer(engine) == "ok"
