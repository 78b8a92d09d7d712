"""Parts of tests: ``*.sketch`` files that say what a checkpoint would hold, and backends that describe it or cannot.

A file is an object with ``tensors`` (name to [dtype, shape]), ``config``, ``description`` (fields of ``ModelDescription``),
``fail`` (what raises), ``tokenizer`` (false: none). ``*.adapter`` files hold modules: name to [rank, in, out, scale].
"""

import json

from lattice_conformance.scripted_tokenizer import tokenizer_json
from lattice_core import hookimpl
from lattice_core.descriptors import BackendSpec, LoaderSpec, Option
from lattice_core.errors import ModelError
from lattice_core.types import AffineQuantization, LowRankUpdate, Match, ModelDescription, TensorData, TensorSpec


class Sketch:
    def __init__(self, path):
        self.path = path
        self.told = json.loads(path.read_text())
        self.config = {"told": self.told, **self.told.get("config", {"architectures": ["SketchForCausalLM"]})}
        self.generation_config = self.told.get("generation_config", {})
        self.tokenizer_config = {"eos_token": "<|im_end|>"}
        self.chat_template = self.told.get("chat_template")
        self.format = "sketch"
        self.nbytes = 1234

    @property
    def tokenizer_json(self):
        if self.told.get("tokenizer") is False:
            raise ModelError(f"{self.path} has no tokenizer")
        return tokenizer_json()

    def tensors(self):
        if self.told.get("fail") == "tensors":
            raise ModelError(f"{self.path}: the index is torn")
        return {name: self._spec(name, *entry) for name, entry in self.told.get("tensors", {}).items()}

    def _spec(self, name, dtype, shape, scheme=None):
        return TensorSpec(name, dtype, tuple(shape), AffineQuantization(*scheme) if scheme else None)

    def read(self, name):
        raise AssertionError(f"weights were read: {name}")

    def close(self):
        if self.told.get("say_closed"):
            print("closed", flush=True)


class SketchAdapter:
    def __init__(self, told):
        self.told = told
        self.format = "sketched"
        self.nbytes = 77
        self.fingerprint = "f00d"

    def updates(self):
        return {name: self._update(name, *entry) for name, entry in self.told.items()}

    def _update(self, name, rank, inner, outer, scale):
        a = TensorData(TensorSpec(f"{name}.a", "F32", (rank, inner)), memoryview(b""))
        b = TensorData(TensorSpec(f"{name}.b", "BF16", (outer, rank)), memoryview(b""))
        return LowRankUpdate(a, b, scale)

    def close(self):
        pass


class SketchLoader:
    def __init__(self, settings):
        pass

    def open(self, path):
        return Sketch(path)

    def open_adapter(self, path):
        return SketchAdapter(json.loads(path.read_text()))


class SilentBackend:
    def __init__(self, settings):
        self.settings = settings

    def load(self, checkpoint, limits, progress):
        raise AssertionError("the model was loaded")


class SketchBackend(SilentBackend):
    def describe(self, checkpoint, limits):
        fail = checkpoint.config["told"].get("fail")
        if fail == "describe":
            raise ModelError("config.hidden_size is missing")
        if fail == "bug":
            raise ZeroDivisionError("by zero")
        fields = {
            "architecture": "Sketch",
            "vocab_size": 264,
            "context": 1000,
            "dtype": limits.dtype or "float32",
            "weight_bytes": 5_000_000,
            "state_bytes_fixed": 100,
            "state_bytes_per_token": 10 * (self.settings.own["width"] or 1),
            **{
                key: tuple(value) if isinstance(value, list) else value
                for key, value in checkpoint.config["told"].get("description", {}).items()
            },
        }
        return ModelDescription(**{**fields, "context": limits.context or fields["context"]})


def probe(path):
    return Match(90, path.name) if path.suffix == ".sketch" else None


def probe_adapter(path):
    return Match(90, path.name) if path.suffix in (".adapter", ".sketch") else None


@hookimpl
def lattice_loaders():
    yield LoaderSpec(
        name="sketch", summary="sketches", factory=SketchLoader, probe=probe, adapter_probe=probe_adapter, looks_for="*.sketch"
    )


@hookimpl
def lattice_backends():
    width = Option("width", "how wide", type="int")
    yield BackendSpec(name="sketch", summary="describes", factory=SketchBackend, options=(width,))
    yield BackendSpec(name="silent", summary="does not describe", factory=SilentBackend)
