"""Between text and tokens: vocabularies and chat formats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lattice_core.types import Message, Prompt


class Vocabulary(Protocol):
    """The tokenizer as plugins see it (``lattice_core.tokenizer.Tokenizer``)."""

    @property
    def size(self) -> int:
        """Number of token ids, added tokens included; the model's logits may be wider."""
        ...

    @property
    def eos_ids(self) -> frozenset[int]:
        """All ids that end a sequence."""
        ...

    @property
    def json(self) -> bytes:
        """The tokenizer JSON."""
        ...

    @property
    def special_tokens(self) -> Mapping[str, str]:
        """Texts of ``bos_token``, ``eos_token``, ``unk_token`` and ``pad_token``, as far as the checkpoint names them."""
        ...

    def encode(self, text: str, *, control: bool) -> tuple[int, ...]:
        """Token ids; with ``control`` the literals of added tokens become those tokens, without it they are text."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids, special tokens left out."""
        ...

    def token_id(self, token: str) -> int | None:
        """The id of an added or ordinary token by its exact content."""
        ...

    def escape(self, text: str) -> str:
        """``text`` with every literal of an added token hidden, to be put into a template."""
        ...

    def encode_escaped(self, text: str) -> tuple[int, ...]:
        """Ids of a rendered template: what ``escape`` hid is text, all other literals are control tokens."""
        ...


class ChatFormat(Protocol):
    """Renders messages into a prompt for one tokenizer."""

    def render(self, messages: Sequence[Message], options: Mapping[str, Any]) -> Prompt:
        """The prompt up to where the assistant speaks. Raises ``RequestError`` with what the template says."""
        ...

    @property
    def stop_ids(self) -> frozenset[int]:
        """Ids that end an assistant's turn in this format, beside the model's own."""
        ...
