"""Parts of tests: a loader of ``*.counting`` files and a backend whose logits depend on every token that a state consumed.

A file holds an object: ``context``, ``tokenizer_config``, ``post_bos`` (the tokenizer puts ``<|im_start|>`` first by itself).
"""

import json
import threading

import numpy as np

from lattice_conformance.scripted_tokenizer import IM_START_ID, tokenizer_json
from lattice_core import hookimpl
from lattice_core.descriptors import BackendSpec, LoaderSpec, Option
from lattice_core.types import Limits, Match, ModelDescription, ModelInfo, StateId, Want

VOCAB = 264
CONTEXT = 64


def hashed(before, token):
    return (before * 31 + token + 1) % 65521


def logits_after(state_hash):
    """float32 [VOCAB], another for every sequence of tokens."""
    return np.random.default_rng(state_hash).normal(0.0, 2.0, VOCAB).astype(np.float32)


class CountingCheckpoint:
    def __init__(self, told):
        self.told = told
        self.config = {"architectures": ["CountingForCausalLM"], "vocab_size": VOCAB}
        self.generation_config = {}
        self.tokenizer_config = told.get("tokenizer_config", {})
        self.chat_template = None
        self.format = "counting"
        self.nbytes = 0

    @property
    def tokenizer_json(self):
        document = json.loads(tokenizer_json())
        if self.told.get("post_bos"):
            bos = {"id": "<|im_start|>", "ids": [IM_START_ID], "tokens": ["<|im_start|>"]}
            single = [{"SpecialToken": {"id": "<|im_start|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
            document["post_processor"] = {
                "type": "TemplateProcessing",
                "single": single,
                "pair": [*single, {"Sequence": {"id": "B", "type_id": 1}}],
                "special_tokens": {"<|im_start|>": bos},
            }
        return json.dumps(document).encode()

    def tensors(self):
        return {}

    def read(self, name):
        raise AssertionError(name)

    def close(self):
        pass


class CountingLoader:
    def __init__(self, settings):
        pass

    def open(self, path):
        return CountingCheckpoint(json.loads(path.read_text()))


class Handle:
    def __init__(self, array):
        self.array = array


class CountingModel:
    """``log`` holds (tokens, want) of each forward. ``at`` says what goes wrong: ``nan``, ``raise`` or ``hang``."""

    def __init__(self, context=CONTEXT, vocab=VOCAB, at=None):
        self.info = ModelInfo(
            architecture="counting",
            vocab_size=vocab,
            context=context,
            eos_ids=frozenset(),
            device="abacus",
            dtype="float32",
            nbytes=0,
        )
        self.at = at
        self.states = {}
        self.log = []
        self.made = 0
        self.closed = False

    def new_state(self):
        state = StateId(self.made)
        self.made += 1
        self.states[state] = (0, 0)
        return state

    def release(self, states):
        for state in states:
            del self.states[state]

    def forward(self, plan):
        (row,) = plan
        assert row.tokens, "a state is given no token"
        state_hash, length = self.states[row.state]
        rows = []
        for token in row.tokens:
            state_hash, length = hashed(state_hash, token), length + 1
            rows.append(logits_after(state_hash) if self.info.vocab_size == VOCAB else None)
        assert length <= self.info.context
        self.states[row.state] = (state_hash, length)
        self.log.append((row.tokens, row.want))
        if self.at == "raise":
            raise RuntimeError("the beads came off")
        if self.at == "hang":
            print("hanging", flush=True)
            threading.Event().wait()
        if row.want is Want.NONE:
            return Handle(np.zeros((0, self.info.vocab_size), np.float32))
        if self.info.vocab_size != VOCAB:
            return Handle(np.broadcast_to(np.float32(0), (len(row.tokens), self.info.vocab_size)))
        array = np.stack(rows)
        if self.at == "nan":
            array[-1] = np.nan
        return Handle(array)

    def launch(self, arrays):
        pass

    def wait(self, arrays):
        pass

    def read_logits(self, logits):
        return logits

    def close(self):
        assert not self.states, "states were not released"
        self.closed = True


class CountingBackend:
    def __init__(self, settings):
        self.settings = settings

    def load(self, checkpoint, limits, progress):
        if self.settings.own["fail"] == "load":
            raise RuntimeError("out of beads")
        progress(0, 1)
        progress(1, 1)
        context = limits.context or checkpoint.told.get("context", CONTEXT)
        return CountingModel(context, at=self.settings.own["fail"])


class DescribingCountingBackend(CountingBackend):
    """Says what is impossible before it loads; loading is a failure of the test that expects that."""

    def describe(self, checkpoint, limits):
        assert isinstance(limits, Limits)
        context = limits.context or checkpoint.told.get("context", CONTEXT)
        return ModelDescription("counting", VOCAB, context, "float32", 0, 0, 0)


def probe(path):
    return Match(90, path.name) if path.suffix == ".counting" else None


FAIL = Option("fail", "what goes wrong", choices=("load", "nan", "raise", "hang"))


@hookimpl
def lattice_loaders():
    yield LoaderSpec(name="counting", summary="counting files", factory=CountingLoader, probe=probe, looks_for="*.counting")


@hookimpl
def lattice_backends():
    yield BackendSpec(name="counting", summary="an abacus", factory=CountingBackend, options=(FAIL,))
    yield BackendSpec(
        name="describing-counting", summary="an abacus that talks", factory=DescribingCountingBackend, options=(FAIL,)
    )
