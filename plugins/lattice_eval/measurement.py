"""One measurement of perplexity, from an opened checkpoint to figures. Called on the thread that may own the model."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

from attrs import frozen

from lattice_core.causes import cause_of
from lattice_core.errors import LatticeError, ModelError, StepError, UsageError
from lattice_core.protocols import DescribingBackend
from lattice_eval.likelihood import RunningMean, perplexity
from lattice_eval.scoring import score
from lattice_eval.windows import windows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    import numpy as np

    from lattice_core.protocols import Backend, Checkpoint, Model
    from lattice_core.types import Limits, ModelInfo

LARGEST_DEFAULT_WINDOW = 2048


@frozen
class Request:
    """What to measure. ``window`` and ``stride`` None: the defaults; both in tokens."""

    tokens: Sequence[int]
    window: int | None
    stride: int | None
    limits: Limits


@frozen
class Figures:
    """The result. Negative log likelihoods are in nats per token; errors are standard errors, None for a single token."""

    model: ModelInfo
    window: int
    stride: int
    windows: int
    scored: int
    nll: float
    nll_error: float | None
    seconds: float
    load_seconds: float

    @property
    def perplexity(self) -> float:
        """``exp(nll)``."""
        return perplexity(self.nll)

    @property
    def perplexity_error(self) -> float | None:
        """By the delta method: the derivative of ``exp`` times the error of its argument."""
        return None if self.nll_error is None else self.perplexity * self.nll_error

    @property
    def tokens_per_second(self) -> float:
        """Scored tokens; what a window sees again only as context is not counted."""
        return self.scored / self.seconds if self.seconds else 0.0


def measure(
    make_backend: Callable[[], Backend], checkpoint: Checkpoint, request: Request, report: Callable[..., None]
) -> Figures:
    """Load the model, score, free it. ``report(what, done, total, note)`` is called as it goes.

    Raises ``UsageError`` for a window or stride that cannot be, ``ModelError``, ``GenerationError``.
    """
    backend = make_backend()
    if isinstance(backend, DescribingBackend):
        # What is impossible is said before the weights are read.
        described = backend.describe(checkpoint, request.limits)
        _check(request, described.context, described.vocab_size)
    started = time.monotonic()
    model = _load(backend, checkpoint, request.limits, lambda done, total: report("loading", done, total))
    try:
        window, stride = _check(request, model.info.context, model.info.vocab_size)
        return _measure(model, request.tokens, window, stride, time.monotonic() - started, report)
    finally:
        model.close()


def _measure(
    model: Model, tokens: Sequence[int], window: int, stride: int, load_seconds: float, report: Callable[..., None]
) -> Figures:
    windows = list(windows_of(len(tokens), window, stride))
    total = sum(item.scored for item in windows)
    mean = RunningMean()
    started = time.monotonic()
    report("scoring", 0, total)
    with closing(_guarded(score(model, tokens, windows))) as parts:
        for values in parts:
            mean.add(values)
            report("scoring", mean.count, total, f"perplexity {perplexity(mean.mean):.4g}")
    return Figures(
        model=model.info,
        window=window,
        stride=stride,
        windows=len(windows),
        scored=mean.count,
        nll=mean.mean,
        nll_error=mean.standard_error,
        seconds=time.monotonic() - started,
        load_seconds=load_seconds,
    )


def _guarded(parts: Generator[np.ndarray]) -> Generator[np.ndarray]:
    """The same, but what a model raises beside Lattice's own errors says where it came from."""
    try:
        yield from parts
    except LatticeError:
        raise
    except Exception as error:
        raise StepError(f"the model failed at a forward pass: {cause_of(error)}") from error


def _load(backend: Backend, checkpoint: Checkpoint, limits: Limits, progress: Callable[[int, int], None]) -> Model:
    try:
        return backend.load(checkpoint, limits, progress)
    except LatticeError:
        raise
    except Exception as error:
        raise ModelError(f"the backend could not load the model: {cause_of(error)}") from error


def _check(request: Request, context: int, vocab_size: int) -> tuple[int, int]:
    """Window and stride. Raises ``UsageError``, or ``ModelError`` for tokens that the model does not have."""
    window = request.window if request.window is not None else min(context, LARGEST_DEFAULT_WINDOW)
    if window > context:
        raise UsageError(f"--window {window}: the model's context is {context} tokens; use --window {context} or less")
    stride = request.stride if request.stride is not None else max(1, window // 2)
    if stride > window:
        raise UsageError(f"--stride {stride} exceeds the window of {window} tokens: text between windows would not be scored")
    if (largest := max(request.tokens)) >= vocab_size:
        raise ModelError(
            f"the tokenizer made token {largest}, but the model's vocabulary is {vocab_size}: they do not belong together"
        )
    return window, stride


def as_mapping(figures: Figures) -> dict[str, Any]:
    """The figures as JSON can hold them; what is infinite becomes null."""
    finite = figures.perplexity != float("inf")
    return {
        "architecture": figures.model.architecture,
        "device": figures.model.device,
        "dtype": figures.model.dtype,
        "window": figures.window,
        "stride": figures.stride,
        "windows": figures.windows,
        "scored": figures.scored,
        "nll": figures.nll,
        "nll_standard_error": figures.nll_error,
        "perplexity": figures.perplexity if finite else None,
        "perplexity_standard_error": figures.perplexity_error if finite else None,
        "seconds": figures.seconds,
        "tokens_per_second": figures.tokens_per_second,
        "load_seconds": figures.load_seconds,
    }
