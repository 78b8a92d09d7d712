"""Runs inside the peer's process: measures mlx-lm on one directory, or becomes its HTTP server. Imports mlx-lm, not Lattice.

``peer_mlx_lm.py measure MODEL WORKLOAD`` prints one JSON object; ``peer_mlx_lm.py serve MODEL PORT`` serves. With
``--blas LIBRARY PREFIX ELF`` the functions of a BLAS are first put under MLX by the file ``ELF`` (Lattice's ``elf.py``).
``--dtype`` casts the weights after they were loaded, before anything is measured.
"""

from __future__ import annotations

# ruff: noqa: PLC0415 - MLX is imported after the BLAS has been put under it
import argparse
import ctypes
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import workload as w


def put_under_mlx(library: str, prefix: str, elf: str) -> None:
    """Publish the three functions that MLX calls, as ``lattice_mlx.blas`` does; must come before MLX is imported."""
    spec = importlib.util.spec_from_file_location("elf", elf)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{elf} is no Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    handle = ctypes.CDLL(library)
    names = ("cblas_sgemm", "cblas_dgemm", "cblas_cgemm")
    module.publish({name: ctypes.cast(handle[prefix + name], ctypes.c_void_p).value for name in names}, "libblas-under-mlx.so")


def measure(model_path: str, workload: w.Workload, dtype: str | None) -> dict[str, Any]:
    """Rates of one sequence through ``generate_step`` and of one and several through ``BatchGenerator``."""
    import mlx.core as mx
    from mlx_lm.generate import BatchGenerator, generate_step  # type: ignore[import-not-found, unused-ignore]  # extra `bench`
    from mlx_lm.utils import load_model  # type: ignore[import-not-found, unused-ignore]  # as above

    mx.set_default_device(mx.cpu)
    model, _ = load_model(Path(model_path))
    if dtype is not None:
        model.set_dtype(getattr(mx, dtype))
        mx.eval(model.parameters())

    def one(prompt: list[int], tokens: int) -> list[int]:
        return [int(token) for token, _ in generate_step(mx.array(prompt), model, max_tokens=tokens)]

    def many(prompts: list[list[int]], tokens: int) -> None:
        generator = BatchGenerator(model, max_tokens=tokens)
        generator.insert(prompts, [tokens] * len(prompts))
        made = 0
        while responses := generator.next_generated():
            made += len(responses)
        if made != tokens * len(prompts):
            raise SystemExit(f"mlx-lm made {made} tokens in place of {tokens * len(prompts)}")

    return w.measure(workload, one, many, lookahead=1)


def serve(model_path: str, port: str) -> None:
    """Become mlx-lm's server on the CPU."""
    import mlx.core as mx
    from mlx_lm import server  # type: ignore[import-not-found, unused-ignore]  # extra `bench`

    mx.set_default_device(mx.cpu)
    sys.argv = ["mlx_lm.server", "--model", model_path, "--port", port, "--log-level", "WARNING"]
    server.main()


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("measure", "serve"))
    parser.add_argument("model")
    parser.add_argument("argument", help="the workload's file, or the port")
    parser.add_argument("--dtype", choices=("float32", "bfloat16", "float16"))
    parser.add_argument("--blas", nargs=3, metavar=("LIBRARY", "PREFIX", "ELF"))
    arguments = parser.parse_args()
    if importlib.util.find_spec("mlx_lm") is None:
        raise SystemExit(f"{sys.executable} has no mlx-lm: install the extra `bench`, or name another with --peer-python")
    if arguments.blas:
        put_under_mlx(*arguments.blas)
    if arguments.what == "serve":
        serve(arguments.model, arguments.argument)
    else:
        print(json.dumps(measure(arguments.model, w.load(Path(arguments.argument)), arguments.dtype)))


if __name__ == "__main__":
    main()
