"""Installs distributions by hand: a ``.dist-info`` folder with METADATA and entry_points.txt is an installed distribution."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lattice_core.plugins import PluginHost, Selection

GOOD = """
from lattice_core import hookimpl
from lattice_core.descriptors import SamplerSpec

@hookimpl
def lattice_samplers():
    yield SamplerSpec(name={name!r}, summary="a sampler", factory=dict)
"""


class Site:
    """A folder on the path of Python with distributions in it."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch):
        self.path = path
        self.path.mkdir(exist_ok=True)
        self._monkeypatch = monkeypatch

    def install(self, distribution, module, source, *, entry_points=None, version="1.0", metadata=None):
        """One distribution with one module; by default its entry point has the module's name."""
        info = self.path / f"{distribution.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        if metadata is None:
            metadata = f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n"
        (info / "METADATA").write_text(metadata)
        if entry_points is None:
            entry_points = f"[lattice]\n{module} = {module}\n"
        if isinstance(entry_points, bytes):
            (info / "entry_points.txt").write_bytes(entry_points)
        else:
            (info / "entry_points.txt").write_text(entry_points)
        if source is not None:
            (self.path / f"{module}.py").write_text(source)

    def good(self, distribution, module, name):
        """A distribution with one sampler."""
        self.install(distribution, module, GOOD.format(name=name))

    def host(self, **selection):
        """The plugin host of this process, with this folder first on the path."""
        self._monkeypatch.syspath_prepend(str(self.path))
        return PluginHost.load(Selection(**selection))

    def lattice(self, *arguments, timeout=60, **environ):
        """Run ``lattice`` in a process of its own, in an empty folder."""
        cwd = self.path.parent / "cwd"
        cwd.mkdir(exist_ok=True)
        path = os.pathsep.join(filter(None, [str(self.path), os.environ.get("PYTHONPATH")]))
        clean = {key: value for key, value in os.environ.items() if not key.startswith("LATTICE_")}
        return subprocess.run(
            [sys.executable, "-P", "-m", "lattice_core", *arguments],
            check=False,
            capture_output=True,
            text=True,
            cwd=cwd,
            timeout=timeout,
            env={**clean, "PYTHONPATH": path, "HOME": str(self.path.parent), **environ},
        )


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A fresh site folder; modules imported from it are forgotten afterwards."""
    made = Site(tmp_path / "site", monkeypatch)
    yield made
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file and Path(file).is_relative_to(made.path):
            del sys.modules[name]
