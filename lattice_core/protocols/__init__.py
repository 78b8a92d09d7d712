"""The protocols of the parts that do the work. Factories make them; the engine calls them directly, never through hooks.

Threads: ``Loader.open``, ``ChatFormat.render``, ``Grammar.compile`` run on a pool. ``Backend``, ``Model``, ``Sampler`` and
grammar states run on the device thread of their model, where everything that touches the device is built.
"""

from __future__ import annotations

from lattice_core.protocols.choosing import BatchSampler, Grammar, GrammarState, Sampler
from lattice_core.protocols.device import AdapterModel, Backend, DescribingBackend, LogitsHandle, Model
from lattice_core.protocols.serving import EngineAPI, Frontend, Generation, Observer, StopSignal
from lattice_core.protocols.storage import AdapterCheckpoint, AdapterLoader, Checkpoint, Loader, ModelSource
from lattice_core.protocols.text import ChatFormat, Vocabulary

__all__ = [
    "AdapterCheckpoint",
    "AdapterLoader",
    "AdapterModel",
    "Backend",
    "BatchSampler",
    "ChatFormat",
    "Checkpoint",
    "DescribingBackend",
    "EngineAPI",
    "Frontend",
    "Generation",
    "Grammar",
    "GrammarState",
    "Loader",
    "LogitsHandle",
    "Model",
    "ModelSource",
    "Observer",
    "Sampler",
    "StopSignal",
    "Vocabulary",
]
