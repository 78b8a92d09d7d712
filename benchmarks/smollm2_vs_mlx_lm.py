"""SmolLM2-135M on this machine's CPU: Lattice against mlx-lm on the same weights, one sequence and eight at once.

``python benchmarks/smollm2_vs_mlx_lm.py [--model GGUF] [--peer-python PYTHON]``; the peer's interpreter needs mlx-lm (the
extra ``bench``). Takes some minutes; nothing else should run meanwhile. Every figure is the median of three runs after a
warm-up, of fewer where one takes long. A directory of mlx-lm is made for each form of the weights: as in the file (q4, with
scales in float32, since half-precision ones are many times slower there), dense float32, dense bfloat16. The peer runs as
it is installed, and once more with the BLAS that Lattice uses put under it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import http_streams
import mlx_lm_checkpoint
import workload as w
from child_process import environment, run_json

from lattice_core.descriptors import Settings
from lattice_core.errors import LatticeError
from lattice_core.tokenizer import Tokenizer
from lattice_gguf.loader import GgufLoader
from lattice_mlx import elf
from lattice_mlx.blas import load_fast_blas
from lattice_mlx.blas_check import examine
from lattice_mlx.openblas_threads import short_waits

if TYPE_CHECKING:
    from collections.abc import Callable

    from lattice_core.protocols import Checkpoint

HERE = Path(__file__).resolve().parent
MODEL = Path.home() / ".lattice" / "models" / "smollm2-135m"
LATTICE = "Lattice"
WITH_BLAS = "mlx-lm f32 + our BLAS"
COLUMNS = {
    "prefill_short": "prefill {short}",
    "prefill_long": "prefill {long}",
    "decode": "decode",
    "streams_1": "1 stream",
    "streams_8": "8 streams",
    "http_1": "HTTP, 1",
    "http_8": "HTTP, 8",
}


def main() -> None:
    """Convert, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", type=Path, default=MODEL, help="GGUF file or its directory (default: %(default)s)")
    parser.add_argument("--peer-python", default=sys.executable, help="interpreter that has mlx-lm (default: this one)")
    parser.add_argument("--forms", nargs="*", default=list(mlx_lm_checkpoint.FORMS), choices=mlx_lm_checkpoint.FORMS)
    parser.add_argument("--no-http", action="store_true", help="leave the servers out")
    parser.add_argument("--quick", action="store_true", help="short prompts, to see that it runs; the figures mean little")
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    arguments = parser.parse_args()
    try:
        checkpoint = GgufLoader(Settings()).open(arguments.model)
    except LatticeError as error:
        raise SystemExit(f"{error.message}; `lattice pull smollm2-135m` gets the model, --model names another place") from error
    ids = list(Tokenizer.from_checkpoint(checkpoint).encode(w.TEXT.strip(), control=False))
    workload = w.make(ids, short=32, long=64, stream=16) if arguments.quick else w.make(ids)
    with tempfile.TemporaryDirectory(prefix="lattice-bench-") as folder:
        results = _measure(checkpoint, workload, arguments, Path(folder))
    _print_table(results, workload)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def _measure(
    checkpoint: Checkpoint, workload: w.Workload, arguments: argparse.Namespace, folder: Path
) -> dict[str, dict[str, Any]]:
    file = folder / "workload.json"
    w.save(workload, file)
    peer = [arguments.peer_python, str(HERE / "peer_mlx_lm.py")]
    blas = _blas()
    results: dict[str, dict[str, Any]] = {}
    for form in dict.fromkeys(("f32", *arguments.forms)):
        mlx_lm_checkpoint.write(checkpoint, form, folder / form)
    dense = str(folder / "f32")
    for form in arguments.forms:
        results[f"mlx-lm {form}"] = run_json([*peer, "measure", str(folder / form), str(file)])
    if blas:
        with short_waits():
            results[WITH_BLAS] = run_json([*peer, "measure", dense, str(file), *blas])
    results[LATTICE] = run_json([sys.executable, str(HERE / "lattice_in_process.py"), str(arguments.model), str(file)])
    if not arguments.no_http:
        tokens = workload.stream_decode
        if "f32" in arguments.forms:
            results["mlx-lm f32"] |= _serve(lambda port: [*peer, "serve", dense, port], folder, tokens)
        if blas:
            with short_waits():
                results[WITH_BLAS] |= _serve(lambda port: [*peer, "serve", dense, port, *blas], folder, tokens)
        lattice = [sys.executable, "-m", "lattice_core", "serve", "--model", str(arguments.model), "--mlx-device", "cpu"]
        results[LATTICE] |= _serve(lambda port: [*lattice, "--port", port], folder, tokens)
    return results


def _blas() -> list[str]:
    """The arguments that put our BLAS under the peer; none where Lattice itself finds none."""
    report = load_fast_blas()
    print(report.line, file=sys.stderr)
    return ["--blas", report.path, examine(report.path)["prefix"], elf.__file__] if report.fast and report.path else []


def _serve(command: Callable[[str], list[str]], folder: Path, tokens: int) -> dict[str, Any]:
    port = http_streams.free_port()
    arguments = command(str(port))
    print("+", *arguments, file=sys.stderr, flush=True)
    with http_streams.server(arguments, environment(), port, folder / "server.log"):
        return http_streams.measure(port, tokens)


def _print_table(results: dict[str, dict[str, Any]], workload: w.Workload) -> None:
    """One row for each runner in tokens per second, then how many times the peer's best Lattice reaches."""
    titles = [title.format(short=len(workload.short), long=len(workload.long)) for title in COLUMNS.values()]
    installed = [row for name, row in results.items() if name not in {LATTICE, WITH_BLAS}]
    rows = {name: [_figure(row.get(key), "{:.1f}") for key in COLUMNS] for name, row in results.items()}
    for label, peers in (("best as installed", installed), ("with our BLAS", [results.get(WITH_BLAS, {})])):
        best = {key: max((row[key] for row in peers if key in row), default=None) for key in COLUMNS}
        rows[f"Lattice / mlx-lm {label}"] = [
            _figure(results[LATTICE][key] / best[key] if best[key] and key in results[LATTICE] else None, "{:.2f}x")
            for key in COLUMNS
        ]
    width = max(map(len, rows))
    print(" " * width, *(f"{title:>11}" for title in titles), sep="  ")
    for name, cells in rows.items():
        print(f"{name:<{width}}", *(f"{cell:>11}" for cell in cells), sep="  ")
    runs = ", ".join(f"{name} {row['runs']}" for name, row in results.items())
    print(f"tokens per second, generated ones for streams and HTTP (prefill included in their time). Runs: {runs}")
    print(f"Lattice: {results[LATTICE]['device']}")
    for name, row in results.items():
        if name == LATTICE:
            continue
        same = row["tokens"] == results[LATTICE]["tokens"]
        print(f"first {len(row['tokens'])} greedy tokens of {name}: {'equal to' if same else 'differ from'} Lattice's")


def _figure(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


if __name__ == "__main__":
    main()
