"""What this plugin registers: the chat formats ``template`` and ``chatml``. Imports nothing heavy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lattice_core import hookimpl
from lattice_core.descriptors import ChatFormatSpec, Option

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lattice_core.protocols import Vocabulary


def probe_template(template: str | None, _vocabulary: Vocabulary) -> int | None:
    """The checkpoint's own template is the best format wherever there is one."""
    return None if template is None else 100


def probe_chatml(_template: str | None, vocabulary: Vocabulary) -> int:
    """ChatML where the vocabulary has its tokens; else it still serves, with its marks as plain text."""
    known = all(vocabulary.token_id(token) is not None for token in ("<|im_start|>", "<|im_end|>"))
    return 50 if known else 1


@hookimpl
def lattice_chat_formats() -> Iterable[ChatFormatSpec]:
    """The two formats."""
    yield ChatFormatSpec(
        name="template",
        summary="the Jinja chat template of the checkpoint, in a sandbox",
        factory="lattice_chat.template_format:create",
        probe=probe_template,
        requires=("jinja2",),
        options=(
            Option(
                "file",
                "read the chat template from this file; where the checkpoint has none, add --chat-format template",
                type="path",
            ),
        ),
    )
    yield ChatFormatSpec(
        name="chatml",
        summary="bare ChatML: <|im_start|>role, text, <|im_end|>",
        factory="lattice_chat.chatml_format:create",
        probe=probe_chatml,
    )
