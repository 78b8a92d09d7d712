"""Parts of tests: commands that share options of the core and of backends, and two backends with options."""

import json

from lattice_core import hookimpl
from lattice_core.descriptors import BackendSpec, CommandSpec, Option


def arguments(parser):
    parser.add_argument("what")
    parser.add_argument("--dtype", help="the command's own")


def show(args, context):
    core = context.values.core
    shown = {
        "args": vars(args),
        "context": core["context"],
        "dtype": core["dtype"],
        "abacus": dict(context.values.own("abacus")),
        "backend": context.make_backend(core["backend"]),
    }
    print(json.dumps(shown))
    return 0


def backend(settings):
    return settings.own


@hookimpl
def lattice_backends():
    for name in ("abacus", "slide-rule"):
        yield BackendSpec(name=name, summary="counts", factory=backend, options=(Option("beads", "how many", type="int"),))


@hookimpl
def lattice_commands():
    yield CommandSpec(
        name="show", summary="show", factory=show, arguments=arguments, core_options=("backend", "context", "dtype")
    )
    yield CommandSpec(name="alone", summary="shares nothing", factory=show, arguments=arguments)
    yield CommandSpec(name="wrong", summary="shares too much", factory=show, arguments=arguments, core_options=("colour",))
