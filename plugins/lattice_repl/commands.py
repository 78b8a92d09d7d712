"""The commands that begin with a slash. They change the conversation and the settings, and speak through notes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lattice_core.errors import LatticeError
from lattice_core.nearest import did_you_mean
from lattice_repl.generation_settings import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Callable

    from lattice_repl.adapter_choice import AdapterChoice
    from lattice_repl.conversation import Conversation
    from lattice_repl.generation_settings import GenerationSettings
    from lattice_repl.screen import Screen

HELP = (
    ("/help", "this list"),
    ("/reset", "forget the conversation; the system message and the settings stay"),
    ("/system [TEXT]", "show the system message, or set it; `/system off` sends none"),
    ("/lora [NAME]", "list the adapters, or answer with one from now on; `/lora off` answers with none"),
    ("/set [NAME [VALUE]]", f"show or change a setting: {', '.join(SETTINGS)}"),
    ("/quit", "leave, as an empty line or Ctrl-D does"),
    ("//TEXT", "a message that begins with a slash"),
    ("Ctrl-C", "ends an answer (what was shown stays in the conversation) or clears the line; twice at the prompt leaves"),
    ("Alt-Enter", "a line break inside a message"),
)
NAMES = ("/help", "/reset", "/system", "/lora", "/set", "/quit")


class Commands:
    """Runs the command in a line."""

    def __init__(
        self, conversation: Conversation, settings: GenerationSettings, screen: Screen, adapters: AdapterChoice
    ) -> None:
        self._conversation = conversation
        self._settings = settings
        self._screen = screen
        self._adapters = adapters
        self._handlers: dict[str, Callable[[str], None]] = {
            "/help": self._help,
            "/reset": self._reset,
            "/system": self._system,
            "/lora": self._lora,
            "/set": self._set,
        }

    def run(self, line: str) -> bool:
        """Run the command that ``line`` holds; False when it asks to leave. What is wrong with it is a note."""
        name, _, rest = line.partition(" ")
        name = name.lower()
        if name == "/quit":
            return False
        handler = self._handlers.get(name)
        if handler is None:
            near = did_you_mean(name, NAMES)
            self._screen.note(f"there is no command {name:.60}{near}; /help lists them, and // begins a message with a slash")
            return True
        try:
            handler(rest.strip())
        except LatticeError as error:
            self._screen.note(error.message)
        return True

    def _help(self, _rest: str) -> None:
        width = max(len(usage) for usage, _ in HELP)
        for usage, meaning in HELP:
            self._screen.note(f"{usage:{width}}  {meaning}")

    def _reset(self, _rest: str) -> None:
        self._conversation.turns.clear()
        self._screen.note("the conversation is forgotten")

    def _system(self, text: str) -> None:
        if text:
            self._conversation.system = "" if text.lower() == "off" else text
        system = self._conversation.system
        self._screen.note(f"system message: {system}" if system else "there is no system message")

    def _lora(self, name: str) -> None:
        if name:
            self._adapters.choose(name)
        for line in self._adapters.lines():
            self._screen.note(line)

    def _set(self, rest: str) -> None:
        name, _, value = rest.partition(" ")
        if not name:
            for known in SETTINGS:
                self._screen.note(self._settings.line(known))
            return
        if value.strip():
            self._settings.change(name, value.strip())
        self._screen.note(self._settings.line(name))
