"""The Jinja environment that chat templates run in: what it offers them, and where it holds them to their limits.

It follows what templates are written against (the environment of Hugging Face's ``apply_chat_template``): blocks trimmed,
``raise_exception``, ``strftime_now``, ``tojson`` without HTML escapes, ``break`` and ``continue``, ``generation`` blocks.
Knows nothing of tokenizers.
"""

from __future__ import annotations

import functools
import json
import threading
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn

from jinja2 import Template, TemplateError, nodes
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment

from lattice_chat.template_limits import (
    SECONDS,
    Clock,
    LimitError,
    TimedIterable,
    bounded_join,
    check_call,
    check_operator,
    weigh,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from jinja2.parser import Parser
    from jinja2.runtime import Context

_TIMED, _JOINED = "lattice timed", "lattice joined"  # names that no template can write
_LEFT_OUT = ("pprint", "urlize", "wordwrap", "xmlattr", "striptags", "random")
_METHODS = frozenset({"replace", "join", "format", "format_map", "center", "ljust", "rjust", "zfill"})
_REFUSED_METHODS = frozenset({"translate", "expandtabs", "maketrans"})


class RefusalError(TemplateError):
    """A template that called ``raise_exception``."""


class GenerationBlock(Extension):
    """``{% generation %}...{% endgeneration %}`` marks an assistant's text for training; here it is just its content."""

    tags = {"generation"}  # noqa: RUF012  # Jinja's own attribute, a plain set there

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """The statements between the tags."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class TemplateSandbox(ImmutableSandboxedEnvironment):
    """A sandbox whose loops, calls, operators and joins are held to ``template_limits``. One serves all threads."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.loopcontrols", GenerationBlock],
            finalize=_weighed,
            cache_size=0,
        )
        self._rendering = threading.local()
        self.concat = bounded_join  # type: ignore[method-assign]  # Jinja reads it from the environment, as a plain function
        for name in _LEFT_OUT:
            self.filters.pop(name, None)
        del self.globals["lipsum"]
        self.filters["tojson"] = _tojson
        for name, function in list(self.filters.items()):
            self.filters[name] = self._guarded(name, function)
        self.filters[_TIMED] = self._timed
        self.filters[_JOINED] = _joined
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = _strftime_now

    def compiled(self, source: str) -> Template:
        """The template, with its loops and joins put under the limits. Raises ``jinja2.TemplateSyntaxError``."""
        tree = self.parse(source)
        for loop in tree.find_all(nodes.For):
            loop.iter = _filtered(loop.iter, _TIMED)
        for parent in list(tree.find_all(nodes.Node)):
            _replace_joins(parent)
        return Template.from_code(self, self.compile(tree), self.make_globals(None))

    def rendered(self, template: Template, variables: Mapping[str, Any]) -> str:
        """The output of ``template``. Raises whatever the template raises, and ``LimitError``."""
        self._rendering.clock = Clock(SECONDS)
        try:
            return bounded_join(template.generate(variables))
        finally:
            self._rendering.clock = None

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call something for a template: counted by the clock, and string methods held to their limits."""
        self._tick()
        # Jinja hands out its own wrapper of str.format; the method stands behind it.
        method = getattr(obj, "__wrapped__", obj)
        owner = getattr(method, "__self__", None)
        if isinstance(owner, str) and method.__name__ in _METHODS:
            check_call(method.__name__, (owner, *args), kwargs)
        return super().call(context, obj, *args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Calculate for a template, unless the result would be too large."""
        check_operator(operator, left, right)
        return super().call_binop(context, operator, left, right)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """As in Jinja's sandbox, without the string methods whose result has no bound."""
        if isinstance(obj, str) and attr in _REFUSED_METHODS:
            return False
        return super().is_safe_attribute(obj, attr, value)

    def _tick(self) -> None:
        clock: Clock | None = getattr(self._rendering, "clock", None)
        if clock is not None:  # Jinja folds constants when it compiles, where no clock runs
            clock.tick()

    def _timed(self, iterable: Iterable[Any]) -> TimedIterable:
        return TimedIterable(iterable, self._tick)

    def _guarded(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        first = 1 if hasattr(function, "jinja_pass_arg") else 0

        @functools.wraps(function)  # keeps Jinja's marks on the function
        def guarded(*args: Any, **kwargs: Any) -> Any:
            self._tick()
            check_call(name, args[first:], kwargs)
            return function(*args, **kwargs)

        return guarded


def _filtered(node: nodes.Node, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


def _replace_joins(parent: nodes.Node) -> None:
    """Put ``a ~ b`` among the children of ``parent`` under the limit: Jinja has no hook of its own for it."""
    for field, value in parent.iter_fields():
        if isinstance(value, nodes.Concat):
            setattr(parent, field, _joined_node(value))
        elif isinstance(value, list):
            value[:] = [_joined_node(item) if isinstance(item, nodes.Concat) else item for item in value]


def _joined_node(concat: nodes.Concat) -> nodes.Filter:
    return _filtered(nodes.List(concat.nodes, lineno=concat.lineno), _JOINED)


def _joined(values: Sequence[Any]) -> str:
    weigh(values)
    return bounded_join(map(str, values))


def _weighed(value: Any) -> Any:
    weigh(value)
    return value


def _raise_exception(message: Any) -> NoReturn:
    raise RefusalError(str(message))


def _strftime_now(pattern: str) -> str:
    """The local time in the notation of ``strftime``."""
    if len(pattern) > 100:  # noqa: PLR2004  # no date needs a longer pattern
        raise LimitError("a date pattern of more than 100 characters")
    return datetime.now().astimezone().strftime(pattern)


def _tojson(
    value: Any,
    indent: int | None = None,
    separators: Sequence[str] | None = None,
    *,
    ensure_ascii: bool = False,
    sort_keys: bool = False,
) -> str:
    """JSON as models were trained on it: no HTML escapes, no sorted keys, characters as they are."""
    pair = None if separators is None else (separators[0], separators[1])
    encoder = json.JSONEncoder(ensure_ascii=ensure_ascii, indent=indent, separators=pair, sort_keys=sort_keys)
    return bounded_join(encoder.iterencode(value))
