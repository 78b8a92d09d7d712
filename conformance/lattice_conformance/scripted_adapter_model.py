"""Owns the scripted model with adapters: each marks the replies that are made with it, so that a test sees which was used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import evolve

from lattice_conformance.scripted_model import ScriptedModel
from lattice_core.errors import ModelError
from lattice_core.types import AdapterId

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lattice_conformance.script import Script
    from lattice_conformance.scripted_model import ScriptedLogits
    from lattice_core.protocols import AdapterCheckpoint
    from lattice_core.types import RowInput, StateId


class ScriptedAdapterModel(ScriptedModel):
    """Implements ``AdapterModel``: a reply made with an adapter ends in ``<FINGERPRINT>``.

    ``adapters`` are the fingerprints of what is resident. Breaking the contract raises: ``KeyError`` for an adapter that is
    not loaded, ``ValueError`` for a state that is fed with another one than before.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.adapters: dict[AdapterId, str] = {}
        self._sizes: dict[AdapterId, int] = {}
        self._used: dict[StateId, AdapterId | None] = {}
        self._next_adapter = 1

    def load_adapter(self, adapter: AdapterCheckpoint) -> AdapterId:
        """Make an adapter resident; ``ModelError`` for one that changes modules, since this model has none."""
        if changed := list(adapter.updates()):
            raise ModelError(f"the adapter changes {changed[0]}, which the scripted model does not have")
        made = AdapterId(self._next_adapter)
        self._next_adapter += 1
        self.adapters[made], self._sizes[made] = adapter.fingerprint, adapter.nbytes
        return made

    def adapter_bytes(self, adapter: AdapterId) -> int:
        """As many as it had in its file."""
        return self._sizes[adapter]

    def unload_adapter(self, adapter: AdapterId) -> None:
        """Free an adapter; ``KeyError`` for an unknown one."""
        del self.adapters[adapter], self._sizes[adapter]

    def forward(self, plan: Sequence[RowInput]) -> ScriptedLogits:
        """As the plain model's, once the adapters of the plan are checked."""
        for row in plan:
            if row.adapter is not None and row.adapter not in self.adapters:
                raise KeyError(f"adapter {row.adapter} is not loaded")
            if self._used.setdefault(row.state, row.adapter) != row.adapter:
                raise ValueError(f"state {row.state} is fed with adapter {row.adapter} after {self._used[row.state]}")
        return super().forward(plan)

    def fork(self, states: Sequence[StateId]) -> list[StateId]:
        """Independent copies of states, each with its adapter."""
        made = super().fork(states)
        self._used |= {copy: self._used[state] for copy, state in zip(made, states, strict=True) if state in self._used}
        return made

    def release(self, states: Sequence[StateId]) -> None:
        """Free states; ``KeyError`` for an unknown id."""
        super().release(states)
        for state in states:
            self._used.pop(state, None)

    def reset(self) -> None:
        """Drop all states; adapters stay."""
        super().reset()
        self._used.clear()

    def _script_of(self, state: StateId) -> Script:
        script = super()._script_of(state)
        adapter = self._used.get(state)
        if adapter is None:
            return script
        return evolve(script, reply=(script.reply + f"<{self.adapters[adapter]}>".encode())[: self.info.context])
