"""The command line: finds plugins, decides options, composes an engine and runs it."""

from lattice_core.cli.entry import main

__all__ = ["main"]
