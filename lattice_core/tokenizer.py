"""The tokenizer of a model: text to ids and back, and the rule that message text can never act as control.

Owns the ``tokenizers`` library. Never changes a tokenizer after it is built, so one instance serves all threads.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import tokenizers

from lattice_core.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lattice_core.protocols import Checkpoint

# Two noncharacters of Unicode, which no text needs, bracket what is hidden. They are hidden themselves when text holds them.
_OPEN, _CLOSE = "\ufdd0", "\ufdd1"
_NAMED = ("bos_token", "eos_token", "unk_token", "pad_token")
_HIDDEN = re.compile(f"{_OPEN}([0-9]+){_CLOSE}")


class Tokenizer:
    """Implements ``protocols.Vocabulary`` over the JSON format of the ``tokenizers`` library."""

    def __init__(self, tokenizer_json: bytes, config: Mapping[str, Any] | None = None, eos_ids: Sequence[int] = ()) -> None:
        """Build from JSON; ``config`` is ``tokenizer_config.json``, ``eos_ids`` are further end-of-sequence ids.

        Raises ``ModelError`` when the JSON is no tokenizer.
        """
        try:
            document: dict[str, Any] = json.loads(tokenizer_json)
            # A checkpoint's truncation or padding would silently change prompts.
            document["truncation"] = document["padding"] = None
            self._full = tokenizers.Tokenizer.from_str(json.dumps(document))
        except Exception as error:  # the library raises bare Exception
            raise ModelError(f"tokenizer.json cannot be read: {error}") from error
        self._json = tokenizer_json
        self._document = document
        added = document.get("added_tokens") or []
        self._added: dict[str, dict[str, Any]] = {token["content"]: token for token in added}
        self.special_ids = frozenset(token["id"] for token in added if token.get("special"))
        literals = sorted((content for content in self._added if content), key=len, reverse=True)
        self._hideable = [*literals, _OPEN, _CLOSE]
        self._index = {literal: number for number, literal in enumerate(self._hideable)}
        self._escape_pattern = re.compile("|".join(re.escape(literal) for literal in self._hideable))
        self._control_pattern = re.compile("|".join(re.escape(literal) for literal in literals)) if literals else None
        self._plain_first, self._plain_rest = _plain_tokenizers(document, self._added)
        config = config or {}
        texts = {name: _token_text(config.get(name)) for name in _NAMED}
        self._named = {name: text for name, text in texts.items() if text is not None}
        self._bos_id = self.token_id(self._named["bos_token"]) if "bos_token" in self._named else None
        from_config = self.token_id(self._named["eos_token"]) if "eos_token" in self._named else None
        self._eos_ids = frozenset(eos_ids) | (frozenset() if from_config is None else {from_config})

    @classmethod
    def from_checkpoint(cls, checkpoint: Checkpoint) -> Tokenizer:
        """The tokenizer of a checkpoint; end-of-sequence ids are the union of all that its files name."""
        eos = [*_ids(checkpoint.config.get("eos_token_id")), *_ids(checkpoint.generation_config.get("eos_token_id"))]
        text_config = checkpoint.config.get("text_config")
        if isinstance(text_config, dict):
            eos += _ids(text_config.get("eos_token_id"))
        return cls(checkpoint.tokenizer_json, checkpoint.tokenizer_config, eos)

    @property
    def json(self) -> bytes:
        """The tokenizer JSON as it was given."""
        return self._json

    @property
    def special_tokens(self) -> Mapping[str, str]:
        """Texts of ``bos_token``, ``eos_token``, ``unk_token`` and ``pad_token``, as far as the checkpoint names them."""
        return self._named

    @property
    def document(self) -> Mapping[str, Any]:
        """The parsed tokenizer JSON (not to be changed)."""
        return self._document

    @property
    def size(self) -> int:
        """Number of token ids, added tokens included."""
        return self._full.get_vocab_size(with_added_tokens=True)

    @property
    def eos_ids(self) -> frozenset[int]:
        """All ids that end a sequence."""
        return self._eos_ids

    def token_id(self, token: str) -> int | None:
        """The id of an added or ordinary token by its exact content."""
        return self._full.token_to_id(token)

    def token(self, token_id: int) -> str | None:
        """The content of a token as the vocabulary spells it."""
        return self._full.id_to_token(token_id)

    def encode(self, text: str, *, control: bool) -> tuple[int, ...]:
        """Ids of ``text``.

        With ``control`` the literals of added tokens become those tokens and the tokenizer's own beginning-of-sequence rule
        applies, once (a text that already begins with that token keeps one). Without it everything is text.
        """
        text = _without_surrogates(text)
        if not control:
            return tuple(self._plain_first.encode(text, add_special_tokens=False).ids)
        ids = self._full.encode(text, add_special_tokens=True).ids
        if self._bos_id is not None and ids[:2] == [self._bos_id, self._bos_id]:
            del ids[0]
        return tuple(ids)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids, special tokens left out; ids that the tokenizer does not know give nothing."""
        return self._full.decode(list(ids), skip_special_tokens=True)

    def escape(self, text: str) -> str:
        """``text`` with every literal of an added token hidden, so that a template can carry it as text."""
        return self._escape_pattern.sub(self._hide, _without_surrogates(text))

    def encode_escaped(self, text: str) -> tuple[int, ...]:
        """Ids of a rendered template: literals of added tokens are control, those that ``escape`` hid are text."""
        text = _without_surrogates(text)
        if _OPEN not in text:
            return tuple(self._full.encode(text, add_special_tokens=False).ids)
        ids: list[int] = []
        for control, piece in self._pieces(text):
            if control is not None:
                ids.append(control)
                continue
            plain = self._plain_rest if ids else self._plain_first
            ids += plain.encode(_HIDDEN.sub(self._reveal, piece), add_special_tokens=False).ids
        return tuple(ids)

    def _pieces(self, text: str) -> Iterator[tuple[int | None, str]]:
        """Control ids and the text between them; the added tokens' own stripping of white space is kept."""
        position, strip_next = 0, False
        for match in self._control_pattern.finditer(text) if self._control_pattern else ():
            token = self._added[match.group()]
            piece = text[position : match.start()]
            if strip_next:
                piece = piece.lstrip()
            if token.get("lstrip"):
                piece = piece.rstrip()
            if piece:
                yield None, piece
            yield token["id"], ""
            position, strip_next = match.end(), bool(token.get("rstrip"))
        piece = text[position:].lstrip() if strip_next else text[position:]
        if piece:
            yield None, piece

    def _hide(self, match: re.Match[str]) -> str:
        return f"{_OPEN}{self._index[match.group()]}{_CLOSE}"

    def _reveal(self, match: re.Match[str]) -> str:
        number = int(match.group(1))
        return self._hideable[number] if number < len(self._hideable) else match.group()


def _plain_tokenizers(document: dict[str, Any], added: Mapping[str, Any]) -> tuple[tokenizers.Tokenizer, tokenizers.Tokenizer]:
    """The tokenizer without added tokens: for the start of a text, and for later pieces of it."""
    plain = dict(document, added_tokens=[], post_processor=None)
    model = dict(plain["model"])
    if isinstance(model.get("vocab"), dict):
        # A model that looks whole words up (ignore_merges) must not find a control token either.
        merged = {part for merge in model.get("merges") or () for part in _merge_results(merge)}
        model["vocab"] = {text: number for text, number in model["vocab"].items() if text not in added or text in merged}
    plain["model"] = model
    first = tokenizers.Tokenizer.from_str(json.dumps(plain))
    rest = dict(plain, pre_tokenizer=_never_prepend(plain.get("pre_tokenizer")))
    if rest["pre_tokenizer"] == plain.get("pre_tokenizer"):
        return first, first
    return first, tokenizers.Tokenizer.from_str(json.dumps(rest))


def _merge_results(merge: str | list[str]) -> Iterator[str]:
    left, right = merge.split(" ", 1) if isinstance(merge, str) else merge
    yield left
    yield right
    yield left + right


def _never_prepend(pre_tokenizer: Any) -> Any:
    """A pre-tokenizer whose Metaspace part adds its mark at the first piece only, as used for a later piece."""
    if not isinstance(pre_tokenizer, dict):
        return pre_tokenizer
    if pre_tokenizer.get("type") == "Sequence":
        return dict(pre_tokenizer, pretokenizers=[_never_prepend(part) for part in pre_tokenizer["pretokenizers"]])
    if pre_tokenizer.get("type") == "Metaspace" and pre_tokenizer.get("prepend_scheme") == "first":
        return dict(pre_tokenizer, prepend_scheme="never")
    return pre_tokenizer


def _token_text(value: Any) -> str | None:
    """A token of ``tokenizer_config.json``: a string, or an object with ``content``."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) and value else None


def _ids(value: Any) -> list[int]:
    """Ids of a configuration field that is absent, one integer or a list of them."""
    values = value if isinstance(value, list) else [value]
    return [item for item in values if isinstance(item, int) and not isinstance(item, bool)]


def _without_surrogates(text: str) -> str:
    """JSON may carry lone surrogates, which are no text; the tokenizer would refuse them with an encoding error."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
