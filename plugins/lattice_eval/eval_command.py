"""The command ``lattice eval``: reads the text, runs the measurement, prints the figures on standard output."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from lattice_core.errors import ExitCode, UsageError
from lattice_core.tokenizer import Tokenizer
from lattice_core.types import Limits
from lattice_eval.device_thread import run_on_device_thread
from lattice_eval.measurement import Figures, Request, as_mapping, measure
from lattice_eval.progress import progress_on
from lattice_eval.text_tokens import TextTokens, read_text, tokenize

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lattice_core.protocols import Backend, Checkpoint

_INTERRUPTED = 130
_FEWEST_TOKENS = 2


def arguments(parser: ArgumentParser) -> None:
    """Add the arguments of ``lattice eval``."""
    parser.add_argument("measure", choices=("perplexity",), help="what to measure")
    parser.add_argument("--text", metavar="FILE", required=True, help="the text, in UTF-8; - is standard input")
    parser.add_argument(
        "--window", metavar="N", type=int, help="tokens that the model sees at once (default: its context, 2048 at most)"
    )
    parser.add_argument("--stride", metavar="N", type=int, help="tokens from window to window (default: half the window)")
    parser.add_argument("--max-tokens", metavar="N", type=int, help="use the first N tokens of the text only")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def evaluate(args: Namespace, context: Any) -> int:
    """Measure the perplexity of a text under a model and print it. Returns the exit status, 130 after Ctrl-C.

    Raises ``UsageError`` for arguments that cannot be met, ``ModelError`` and ``GenerationError`` for the model.
    """
    _check_arguments(args)
    make_backend = _backend(context)
    text = read_text(args.text)
    path, checkpoint = context.open_model()
    try:
        tokens = _tokens(args, checkpoint, text)
        core = context.values.core
        limits = Limits(context=core["context"], max_batch=1, dtype=core["dtype"])
        request = Request(tokens.ids, args.window, args.stride, limits)
        with progress_on(sys.stderr) as progress:
            figures = run_on_device_thread(lambda report: measure(make_backend, checkpoint, request, report), progress.report)
    except KeyboardInterrupt:
        sys.stderr.write("[lattice] stopped; nothing was measured to the end\n")
        return _INTERRUPTED
    finally:
        checkpoint.close()
    _print(args, path, checkpoint, tokens, figures)
    return int(ExitCode.OK)


def _check_arguments(args: Namespace) -> None:
    for flag, value, least in (
        ("--window", args.window, _FEWEST_TOKENS),
        ("--stride", args.stride, 1),
        ("--max-tokens", args.max_tokens, _FEWEST_TOKENS),
    ):
        if value is not None and value < least:
            raise UsageError(f"{flag} {value}: the least is {least}")


def _backend(context: Any) -> Callable[[], Backend]:
    """Makes the backend, on the thread that will own the model. Raises ``PluginError``, ``UsageError``."""
    name = context.values.core["backend"]
    if name is not None:
        consumes = context.registry.require("backend", name).spec.consumes
        if consumes != "tensors":
            raise UsageError(f"--backend {name} consumes {consumes}: lattice eval needs a backend that loads a model's tensors")
    return lambda: context.make_backend(name)


def _tokens(args: Namespace, checkpoint: Checkpoint, text: str) -> TextTokens:
    found = tokenize(text, Tokenizer.from_checkpoint(checkpoint), checkpoint.tokenizer_config)
    if len(found.ids) < _FEWEST_TOKENS:
        raise UsageError(f"--text {args.text} has {len(found.ids)} tokens: perplexity needs at least {_FEWEST_TOKENS}")
    return TextTokens(found.ids[: args.max_tokens], found.bos)


def _print(args: Namespace, path: Path, checkpoint: Checkpoint, tokens: TextTokens, figures: Figures) -> None:
    if args.json:
        head = {"measure": "perplexity", "model": str(path), "format": checkpoint.format, "text": args.text}
        document = {**head, "tokens": len(tokens.ids), "bos_id": tokens.bos, **as_mapping(figures)}
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
    else:
        for label, line in _lines(args, path, checkpoint, tokens, figures):
            sys.stdout.write(f"{label:<12}{line}\n")


def _lines(
    args: Namespace, path: Path, checkpoint: Checkpoint, tokens: TextTokens, figures: Figures
) -> Iterator[tuple[str, str]]:
    bos = "no beginning-of-sequence token added" if tokens.bos is None else f"token {tokens.bos} added at the beginning"
    yield "model", f"{path} ({checkpoint.format}), {figures.model.architecture}"
    yield "device", figures.model.device
    yield "text", f"{args.text}: {len(tokens.ids)} tokens, {bos}"
    yield "windows", f"{figures.windows} of up to {figures.window} tokens, stride {figures.stride}"
    rate = f"{figures.tokens_per_second:.1f} tokens/s"
    yield "scored", f"{figures.scored} tokens in {figures.seconds:.1f} s ({rate}), loaded in {figures.load_seconds:.1f} s"
    yield "nll", f"{figures.nll:.6f}{_plus_minus(figures.nll_error, 6)} nats per token"
    yield "perplexity", f"{figures.perplexity:.4f}{_plus_minus(figures.perplexity_error, 4)}"


def _plus_minus(error: float | None, decimals: int) -> str:
    return "" if error is None else f" +/- {error:.{decimals}f}"
