"""What transformers computes in bfloat16 on the CPU for the tiny models, and how far that is from float32.

Owns ``bf16-reference.npz``: per ``tiny-*`` fixture ``FIXTURE/logits`` float32 [37, 512] of the prompt in
``reference.npz``, and ``FIXTURE/max_abs_error`` and ``FIXTURE/mean_abs_error``, float32 scalars, of their difference to
that file's float32 logits. A bfloat16 engine can be held to a multiple of these errors. The weights are rounded to
bfloat16 also where the fixture holds float32, so the rounding of weights is part of the error there.

Needs torch, transformers and numpy. Usage: ``make_bf16_reference.py [OUT.npz]``; every run on one kind of processor
writes the same bytes, another kind may round elsewhere. ``--noise`` prints instead how the errors move when only the
order of the arithmetic changes, and how they spread over other prompts.
"""

import contextlib
import sys
from pathlib import Path

import numpy as np
import torch
import transformers

DATA = Path(__file__).resolve().parent
OTHER_PROMPTS = 12
FIRST_MARKER_ID = 493  # ids below it are plain text
FIXTURES = sorted(path.name for path in DATA.glob("tiny-*"))


def open_model(fixture: str, dtype=torch.bfloat16):
    """The text model in one type; transformers decides what it keeps in float32."""
    return transformers.AutoModelForCausalLM.from_pretrained(DATA / fixture, dtype=dtype, attn_implementation="eager").eval()


def logits_at_once(model, ids: np.ndarray) -> np.ndarray:
    """Logits float32 [tokens, vocabulary] of one forward pass without a cache."""
    with torch.no_grad():
        return model(input_ids=torch.from_numpy(ids.astype(np.int64))[None], use_cache=False).logits[0].float().numpy()


def logits_in_pieces(model, ids: np.ndarray, piece: int) -> np.ndarray:
    """The same through the cache, ``piece`` tokens per pass."""
    cache, parts = None, []
    tokens = torch.from_numpy(ids.astype(np.int64))[None]
    with torch.no_grad():
        for start in range(0, len(ids), piece):
            out = model(input_ids=tokens[:, start : start + piece], cache=cache, use_cache=True)
            cache = out.cache
            parts.append(out.logits[0].float().numpy())
    return np.concatenate(parts)


def errors(logits: np.ndarray, expected: np.ndarray) -> tuple[float, float]:
    """Largest and mean absolute difference."""
    difference = np.abs(logits - expected)
    return float(difference.max()), float(difference.mean())


@contextlib.contextmanager
def threads(count: int):
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def errors_of_other_prompts(fixture: str, model, length: int) -> np.ndarray:
    """Largest and mean absolute difference to float32 for seeded random prompts, float64 [prompts, 2]."""
    exact, draw = open_model(fixture, torch.float32), np.random.default_rng(11)
    prompts = [draw.integers(0, FIRST_MARKER_ID, length) for _ in range(OTHER_PROMPTS)]
    return np.array([errors(logits_at_once(model, ids), logits_at_once(exact, ids)) for ids in prompts])


def print_noise() -> None:
    """Max and mean error per fixture, for ways of running that change only the order of the arithmetic, and by prompt."""
    for fixture in FIXTURES:
        reference = np.load(DATA / fixture / "reference.npz")
        model, ids, expected = open_model(fixture), reference["prompt_ids"], reference["logits"]
        runs = {}
        for count in (1, 2, 4):
            with threads(count):
                runs[f"{count} threads"] = logits_at_once(model, ids)
        with torch.backends.mkldnn.flags(enabled=False):
            runs["without oneDNN"] = logits_at_once(model, ids)
        runs |= {f"pieces of {piece}": logits_in_pieces(model, ids, piece) for piece in (1, 8, 16)}
        figures = {name: errors(logits, expected) for name, logits in runs.items()}
        cells = [f"{name} {worst:.3f}/{mean:.4f}" for name, (worst, mean) in figures.items()]
        spread = errors_of_other_prompts(fixture, model, len(ids))
        low, high = spread.min(axis=0), spread.max(axis=0)
        cells.append(f"other prompts {low[0]:.3f} to {high[0]:.3f}/{low[1]:.4f} to {high[1]:.4f}")
        print(f"{fixture}: " + ", ".join(cells))


def main() -> None:
    """Write the file, or print how noisy its figures are."""
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    if "--noise" in sys.argv[1:]:
        print_noise()
        return
    arrays = {}
    for fixture in FIXTURES:
        reference = np.load(DATA / fixture / "reference.npz")
        model = open_model(fixture)
        logits = logits_at_once(model, reference["prompt_ids"])
        worst, mean = errors(logits, reference["logits"])
        arrays[f"{fixture}/logits"] = logits
        arrays[f"{fixture}/max_abs_error"] = np.float32(worst)
        arrays[f"{fixture}/mean_abs_error"] = np.float32(mean)
        agree = (logits.argmax(-1) == reference["logits"].argmax(-1)).mean()
        kept = sorted({name.split(".", 3)[-1] for name, x in model.named_parameters() if x.dtype != torch.bfloat16})
        print(
            f"{fixture}: max {worst:.4f}, mean {mean:.4f}, argmax agrees {agree:.3f}, float32: {', '.join(kept) or 'nothing'}"
        )
    np.savez_compressed(Path(sys.argv[1]) if len(sys.argv) > 1 else DATA / "bf16-reference.npz", **arrays)


if __name__ == "__main__":
    main()
