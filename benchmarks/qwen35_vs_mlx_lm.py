"""The shape of Qwen3.5-0.8B on this machine's CPU: start, memory and speed of Lattice, and speed of mlx-lm.

``python benchmarks/qwen35_vs_mlx_lm.py [--peer-python PYTHON] [--folder FOLDER]``; the peer's interpreter needs mlx-lm (the
extra ``bench``). Weights are random; they are made once in FOLDER (3 GB, kept) as bfloat16 and quantised from that to q4 and
to MLX's 4 bits. Nothing else should run meanwhile. It takes about ten minutes, most of them mlx-lm's, whose one prompt of 512
tokens takes one to two minutes. Every figure is the median of three runs after a warm-up, of fewer where one takes long.
``--quick`` does the same with small sizes in seconds, to see that it runs; ``--no-peer`` leaves mlx-lm out.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import qwen35_shape
import workload as w
from child_process import environment, run_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

HERE = Path(__file__).resolve().parent
QUANTISED = {"q4": ("--format", "q4"), "mlx4": ("--format", "mlx", "--bits", "4", "--group-size", "64")}
FORMS = ("bf16", *QUANTISED)
PEERS = {"mlx-lm bf16": (), "mlx-lm f32": ("--dtype", "float32")}
"""What mlx-lm computes in; its own 4 bits with bfloat16 activations are many times slower on a CPU than either."""

WANTED_PEAK, WANTED_PREFILL, WANTED_DECODE = 1.3, 12.0, 1.7


def main() -> None:
    """Make the models, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--peer-python", default=sys.executable, help="interpreter that has mlx-lm (default: this one)")
    parser.add_argument("--folder", type=Path, help="where the models are kept (default: a temporary one)")
    parser.add_argument("--forms", nargs="*", default=list(FORMS), choices=FORMS, help="what Lattice runs (default: all)")
    parser.add_argument("--no-peer", action="store_true", help="leave mlx-lm out")
    parser.add_argument("--no-speed", action="store_true", help="only start and memory")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs; the figures mean little")
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    arguments = parser.parse_args()
    with _folder(arguments.folder) as folder:
        models = make_models(folder, arguments.forms, quick=arguments.quick)
        results = _measure(models, folder, arguments)
    _print_start(results)
    if not arguments.no_speed:
        _print_speed(results, arguments)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


@contextlib.contextmanager
def _folder(kept: Path | None) -> Iterator[Path]:
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
        yield kept
        return
    with tempfile.TemporaryDirectory(prefix="lattice-bench-") as name:
        yield Path(name)


def make_models(folder: Path, forms: list[str], *, quick: bool) -> dict[str, Path]:
    """The directories of the forms, made where they are not there yet; the dense one always, for it is quantised."""
    stem = "quick" if quick else "qwen35-0.8b"
    dense = folder / f"{stem}-bf16"
    if not (dense / "model.safetensors").exists():
        print(f"writing {dense}", file=sys.stderr, flush=True)
        qwen35_shape.write(dense, quick=quick)
    found = {"bf16": dense}
    for form in forms:
        if form in QUANTISED:
            found[form] = folder / f"{stem}-{form}"
            if not found[form].exists():
                command = [sys.executable, "-m", "lattice_core", "quantize", str(dense), str(found[form]), *QUANTISED[form]]
                print("+", *command, file=sys.stderr, flush=True)
                subprocess.run(command, env=environment(), stdout=sys.stderr, check=True)
    return found


def make_workload(*, quick: bool) -> w.Workload:
    """One sequence at a time: a short prompt to decode after, a long one to prefill. Tokens mean nothing here."""
    short, long, decode = (16, 48, 32) if quick else (32, 512, 32)
    vocabulary = (qwen35_shape.QUICK if quick else qwen35_shape.FULL)["vocab_size"]
    numbers = random.Random(0)  # noqa: S311  # no secret
    ids = [numbers.randrange(vocabulary) for _ in range(long)]
    return w.Workload(ids[:short], ids, [], decode=decode)


def _measure(models: Mapping[str, Path], folder: Path, arguments: argparse.Namespace) -> dict[str, dict[str, Any]]:
    file = folder / "workload.json"
    w.save(make_workload(quick=arguments.quick), file)
    results: dict[str, dict[str, Any]] = {}
    if not arguments.no_peer and not arguments.no_speed:
        for name, options in PEERS.items():
            peer = [arguments.peer_python, str(HERE / "peer_mlx_lm.py"), "measure", str(models["bf16"]), str(file)]
            results[name] = run_json([*peer, *options])
    for form in arguments.forms:
        began = time.monotonic()
        command = [sys.executable, str(HERE / "lattice_in_process.py"), str(models[form])]
        row = run_json(command if arguments.no_speed else [*command, str(file)])
        row["start"]["seconds"] = row["start"].pop("ready_at") - began
        row["start"]["stored_bytes"] = sum(path.stat().st_size for path in models[form].iterdir())
        results[f"Lattice {form}"] = row
    return results


def _print_start(results: Mapping[str, dict[str, Any]]) -> None:
    """One row for each form: from the start of the process until the model is ready."""
    rows = {name: row["start"] for name, row in results.items() if "start" in row}
    print(f"{'':<16}{'stored MB':>11}{'weights MB':>12}{'peak MB':>11}{'peak/weights':>14}{'ready s':>10}")
    for name, row in rows.items():
        ratio = row["peak_bytes"] / row["resident_bytes"]
        sizes = "".join(
            f"{row[key] / 1e6:>{width}.1f}" for key, width in (("stored_bytes", 11), ("resident_bytes", 12), ("peak_bytes", 11))
        )
        print(f"{name:<16}{sizes}{ratio:>14.2f}{row['seconds']:>10.1f}")
    print(f"wanted: peak below {WANTED_PEAK} times the weights\n")


def _print_speed(results: Mapping[str, dict[str, Any]], arguments: argparse.Namespace) -> None:
    """One row for each runner in tokens per second, with how many times the peer's best Lattice reaches."""
    peers = [row for name, row in results.items() if name in PEERS]
    best = {key: max((row[key] for row in peers), default=None) for key in ("prefill_long", "decode")}
    long = len(make_workload(quick=arguments.quick).long)
    print(f"{'':<16}{f'prefill {long}':>12}{'':>9}{'decode':>12}{'':>9}{'runs':>7}")
    for name, row in results.items():
        cells = f"{row['prefill_long']:>12.2f}{_times(row, best, 'prefill_long', name)}"
        print(f"{name:<16}{cells}{row['decode']:>12.2f}{_times(row, best, 'decode', name)}{row['runs']:>7}")
    device = next((row["device"] for name, row in results.items() if name not in PEERS), "not measured")
    print(f"tokens per second; times the best of mlx-lm. Lattice: {device}")
    print(f"wanted: prefill of 512 at least {WANTED_PREFILL}x, decode at least {WANTED_DECODE}x")
    for name, row in results.items():
        dense = results.get("Lattice bf16")
        if dense is not None and row is not dense:
            same = sum(one == other for one, other in zip(row["tokens"], dense["tokens"], strict=True))
            print(f"of the first {len(row['tokens'])} greedy tokens of {name}, {same} are those of Lattice bf16")


def _times(row: Mapping[str, Any], best: Mapping[str, float | None], key: str, name: str) -> str:
    reference = best[key]
    return f"{'':>9}" if reference is None or name in PEERS else f"{row[key] / reference:>8.2f}x"


if __name__ == "__main__":
    main()
