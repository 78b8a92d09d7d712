"""The checkpoint's own chat template as a chat format.

Renders in ``template_sandbox``. Whatever a template says, does or breaks is an error of the request (400), never of the
server: it is the model's text that does not fit these messages.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import TemplateSyntaxError, meta

from lattice_chat.message_text import as_answer, as_text, values_as_text
from lattice_chat.template_limits import LimitError
from lattice_chat.template_sandbox import RefusalError, TemplateSandbox
from lattice_chat.turn_boundaries import boundaries, turn_opener
from lattice_core.errors import RequestError, UnsupportedFeatureError, UsageError
from lattice_core.types import Prompt

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jinja2 import Template

    from lattice_core.descriptors import Settings
    from lattice_core.protocols import Vocabulary
    from lattice_core.types import Message

TEMPLATE_BYTES = 1024 * 1024
"""Size of a template that is still compiled; real ones take up to some 20 KB."""
MESSAGE_CHARACTERS = 500
"""How much of a template's own message an error repeats."""
SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token")

_OWN = frozenset({"messages", "add_generation_prompt", *SPECIAL_TOKENS})


class TemplateFormat:
    """Implements ``protocols.ChatFormat`` over a Jinja template. Compiled once, rendered from any thread."""

    def __init__(self, source: str, vocabulary: Vocabulary) -> None:
        """Compile ``source``. A template that cannot be compiled is reported by ``render``: raw prompts need none."""
        self._vocabulary = vocabulary
        self._source = source
        self._sandbox = TemplateSandbox()
        self._template: Template | None = None
        self._broken = ""
        self._reads: frozenset[str] = frozenset()
        self._compile()
        self._opener = turn_opener(source, vocabulary)
        end = vocabulary.token_id("<|im_end|>") if "<|im_end|>" in source else None
        self._stop_ids = frozenset() if end is None else frozenset({end})

    @property
    def stop_ids(self) -> frozenset[int]:
        """The id of ``<|im_end|>`` where the template closes its turns with it: not every checkpoint calls it an end."""
        return self._stop_ids

    def render(self, messages: Sequence[Message], options: Mapping[str, Any]) -> Prompt:
        """The prompt up to where the assistant speaks.

        ``options`` become variables of the template. Raises ``RequestError`` with what the template says, and
        ``UnsupportedFeatureError`` for an option that it does not read.
        """
        ids = self._vocabulary.encode_escaped(self.text(messages, options))
        return Prompt(ids=ids, boundaries=boundaries(ids, self._opener))

    def text(self, messages: Sequence[Message], options: Mapping[str, Any]) -> str:
        """The rendered text, with what could act as control in it hidden by ``Vocabulary.escape``."""
        if self._template is None:
            raise RequestError(self._broken, param="messages")
        variables = self._variables(messages, options)
        try:
            return self._sandbox.rendered(self._template, variables)
        except RefusalError as error:
            raise RequestError(f"the chat template refuses these messages: {_short(error)}", param="messages") from error
        except LimitError as error:
            raise RequestError(f"the chat template was stopped: {_short(error)}", param="messages") from error
        except Exception as error:  # a stranger's program may raise anything
            raise RequestError(_failure(error), param="messages") from error

    def _compile(self) -> None:
        try:
            if len(self._source) > TEMPLATE_BYTES:
                self._broken = f"the model's chat template has {len(self._source)} characters, more than {TEMPLATE_BYTES}"
                return
            self._template = self._sandbox.compiled(self._source)
            self._reads = frozenset(meta.find_undeclared_variables(self._sandbox.parse(self._source)))
        except TemplateSyntaxError as error:
            self._broken = f"the model's chat template does not compile: line {error.lineno}: {_short(error)}"
        except (RecursionError, SyntaxError, ValueError, MemoryError) as error:  # what Python says of the compiled form
            self._broken = f"the model's chat template does not compile: {_short(error)}"
        self._broken = self._broken and f"{self._broken}; use --template-file or --chat-format chatml, or send a raw prompt"

    def _variables(self, messages: Sequence[Message], options: Mapping[str, Any]) -> dict[str, Any]:
        variables: dict[str, Any] = {}
        for name, value in options.items():
            if name in _OWN:
                raise RequestError(f"template option {name!r} is set by the engine: leave it out", param=name)
            if name not in self._reads and value is not None and value is not False:
                known = ", ".join(sorted(self._reads - _OWN - self._sandbox.globals.keys())) or "none"
                raise UnsupportedFeatureError(
                    f"the model's chat template does not read {name!r} (it reads: {known}): leave it out",
                    param=name,
                )
            variables[name] = values_as_text(value, self._vocabulary)
        for name in SPECIAL_TOKENS:
            variables[name] = self._vocabulary.special_tokens.get(name, "")
        variables["messages"] = [self._message(message) for message in messages]
        variables["add_generation_prompt"] = True
        return variables

    def _message(self, message: Message) -> dict[str, str]:
        role = message.role
        if role == "developer" and "developer" not in self._source:
            role = "system"
        hide = as_answer if role == "assistant" else as_text
        return {"role": as_text(role, self._vocabulary), "content": hide(message.content, self._vocabulary)}


def create(template: str | None, vocabulary: Vocabulary, settings: Settings) -> TemplateFormat:
    """The factory of the chat format ``template``. Raises ``UsageError`` where there is no template to use."""
    path = settings.own.get("file")
    if path:
        try:
            template = Path(path).expanduser().read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"--template-file {path} cannot be read: {error}", param="template-file") from error
    if template is None:
        raise UsageError(
            "the checkpoint has no chat template: use --chat-format chatml, or give one with --template-file",
            param="chat-format",
        )
    return TemplateFormat(template, vocabulary)


def _failure(error: Exception) -> str:
    """One line for an error inside a template, with the template's line where it is known."""
    line = None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<template>":
            line = trace.tb_lineno
        trace = trace.tb_next
    where = "" if line is None else f" in line {line}"
    return f"the chat template fails on these messages{where}: {type(error).__name__}: {_short(error)}"


def _short(error: BaseException) -> str:
    """The message of ``error`` on one line, without the characters that hide control tokens."""
    text = " ".join(str(error).replace("\ufdd0", " ").replace("\ufdd1", " ").split())
    return text if len(text) <= MESSAGE_CHARACTERS else text[:MESSAGE_CHARACTERS] + "..."
