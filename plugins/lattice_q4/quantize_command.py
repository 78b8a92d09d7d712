"""The command ``lattice quantize``: checks source and target, writes beside the target, and moves it there whole."""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from lattice_core.errors import ExitCode, LatticeError, ModelError, PluginError, UsageError
from lattice_q4.json_file import write_json
from lattice_q4.quantize_progress import progress_on

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable, Iterator, Mapping

    from lattice_core.protocols import Checkpoint
    from lattice_q4.source_tensors import Outcome

_INTERRUPTED = 130
_Q4_BITS, _Q4_GROUP, _MLX_BITS, _MLX_GROUP = 4, 32, 4, 64
_COPIED = ("special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt")
_NAMED = 3


def arguments(parser: ArgumentParser) -> None:
    """Add the arguments of ``lattice quantize``."""
    parser.add_argument("source", metavar="SRC", help="a model's name, directory or file, as --model takes it")
    parser.add_argument("target", metavar="DST", type=Path, help="the directory to make")
    parser.add_argument("--format", choices=("q4", "mlx"), required=True, help="KHQ4 (q4), or MLX's affine format (mlx)")
    parser.add_argument("--bits", type=int, help="bits of a weight; q4: 4; mlx: 2, 3, 4 (default), 5, 6 or 8")
    parser.add_argument("--group-size", type=int, help="weights that share a scale; q4: 32; mlx: 32, 64 (default) or 128")


def quantize(args: Namespace, context: Any) -> int:
    """Write a quantised copy and print its path. Returns the exit status; raises ``UsageError``, ``ModelError``."""
    bits, group_size = _scheme(args)
    path, checkpoint = context.open_checkpoint(args.source)
    try:
        target = _checked_target(args.target, path)
        try:
            with _staged(target) as staging, progress_on(sys.stderr) as progress:
                outcome = _writer(args.format, bits, group_size)(checkpoint, staging, progress.report)
                _copy_texts(checkpoint, path, staging)
        except KeyboardInterrupt:
            sys.stderr.write(f"[lattice] stopped; nothing was written to {target}\n")
            return _INTERRUPTED
    finally:
        checkpoint.close()
    _tell("left out", outcome.left_out)
    _tell(f"not quantised, whose rows do not divide into groups of {group_size}", outcome.kept)
    sys.stdout.write(f"{target}\n")
    return int(ExitCode.OK)


def _tell(what: str, names: tuple[str, ...]) -> None:
    if names:
        shown = ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")
        count = "1 tensor is" if len(names) == 1 else f"{len(names)} tensors are"
        sys.stderr.write(f"[lattice] {count} {what}: {shown}\n")


def _scheme(args: Namespace) -> tuple[int, int]:
    if args.format == "q4":
        for flag, value, only in (("--bits", args.bits, _Q4_BITS), ("--group-size", args.group_size, _Q4_GROUP)):
            if value not in (None, only):
                raise UsageError(f"{flag} {value}: --format q4 has {only} only")
        return _Q4_BITS, _Q4_GROUP
    from lattice_q4.mlx_writer import BITS, GROUP_SIZES  # noqa: PLC0415  imports numpy

    bits = _MLX_BITS if args.bits is None else args.bits
    group_size = _MLX_GROUP if args.group_size is None else args.group_size
    for flag, value, known in (("--bits", bits, BITS), ("--group-size", group_size, GROUP_SIZES)):
        if value not in known:
            raise UsageError(f"{flag} {value}: --format mlx has {', '.join(map(str, known))}")
    return bits, group_size


def _writer(kind: str, bits: int, group_size: int) -> Callable[[Checkpoint, Path, Callable[[int, int], None]], Outcome]:
    if kind == "q4":
        from lattice_q4.q4_writer import write_q4  # noqa: PLC0415  imports numpy

        return write_q4
    from importlib.util import find_spec  # noqa: PLC0415  for this format only

    if find_spec("mlx") is None:
        raise PluginError("--format mlx needs MLX: pip install 'lattice-engine[cpu]'")
    from lattice_q4.mlx_writer import write_mlx  # noqa: PLC0415  imports numpy

    return lambda checkpoint, target, report: write_mlx(checkpoint, target, bits=bits, group_size=group_size, report=report)


def _checked_target(target: Path, source: Path) -> Path:
    """The absolute target. Raises ``UsageError`` where something is there, or where it lies within the source."""
    if target.is_symlink():
        raise UsageError(f"{target} is a symbolic link: name the directory itself")
    target = Path(os.path.abspath(target))  # noqa: PTH100  # `resolve` would follow links of parents, which the user named
    real, origin = target.resolve(), source.resolve()
    if real == origin or origin in real.parents or real in origin.parents:
        raise UsageError(f"{target} and the source {source} lie within one another: name a directory beside it")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"{target} is there already: name a new directory")
    if not target.parent.is_dir():
        raise UsageError(f"{target.parent} is no directory: make it first")
    return target


@contextmanager
def _staged(target: Path) -> Iterator[Path]:
    """A directory beside the target, which becomes the target when all of it is on the disk, or vanishes."""
    staging = target.parent / f".{target.name}.partial-{token_hex(4)}"
    try:
        staging.mkdir()
        yield staging
        for path in (*staging.iterdir(), staging):
            _sync(path)
        # An empty directory gives way, one that was filled meanwhile does not.
        staging.rename(target)
        _sync(target.parent)
    except OSError as error:
        raise LatticeError(f"{target} cannot be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _copy_texts(checkpoint: Checkpoint, source: Path, target: Path) -> None:
    """Tokenizer, template and generation settings as the loader read them, wherever it found them."""
    if source.is_dir():
        for name in _COPIED:
            if (source / name).is_file():
                shutil.copyfile(source / name, target / name)
    try:
        (target / "tokenizer.json").write_bytes(checkpoint.tokenizer_json)
    except ModelError as error:
        sys.stderr.write(f"[lattice] the copy has no tokenizer: {error.message}\n")
    _write_settings(target / "tokenizer_config.json", checkpoint.tokenizer_config)
    _write_settings(target / "generation_config.json", checkpoint.generation_config)
    template = checkpoint.chat_template
    if template is not None and checkpoint.tokenizer_config.get("chat_template") != template:
        (target / "chat_template.jinja").write_bytes(template.encode())


def _write_settings(path: Path, content: Mapping[str, Any]) -> None:
    if content:
        write_json(path, dict(content))
