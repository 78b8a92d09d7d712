"""Perplexity of ``perplexity.txt`` under two tiny models, by transformers in float32 on the CPU.

Owns ``perplexity.npz``. The text is 300 tokens of the fixtures' tokenizer without special tokens, the closing line
break included. Windows as in Hugging Face's documentation "Perplexity of fixed-length models": a window of at most
WINDOW tokens moves by STRIDE; each token but the very first of the text is scored once, in the first window that
holds it, with the tokens before it in that window for context.

Keys: ``ids`` int32 [300] and, per fixture and for (WINDOW, STRIDE) in (128, 64) and (300, 300), below
``FIXTURE/window-WINDOW-stride-STRIDE/``: ``nll`` float64 [299] (entry i is -ln p of token i + 1), ``nll_sum`` float64,
``count`` int64, ``perplexity`` float64 = exp(nll_sum / count), ``window_nll_sums`` float64 and ``window_counts`` int64,
one entry per window. Logits are float32, the log-softmax is taken in float64.

That page's own program weighs windows a little differently: it multiplies every window's mean by one token fewer than
the window scores; here each token has the same weight, which is what the page's text says.

Needs torch, transformers, tokenizers and numpy. Usage: ``make_perplexity_reference.py [OUT.npz]``.
"""

import sys
from pathlib import Path

import numpy as np
import torch
import transformers
from tokenizers import Tokenizer

DATA = Path(__file__).resolve().parent
FIXTURES = ("tiny-llama-tied-f32", "tiny-qwen35-tied-f32")
WINDOWS = ((128, 64), (300, 300))
TOKENS = 300


def read_ids(fixture: str) -> list[int]:
    """The ids of the text; both fixtures have one tokenizer, and it adds nothing."""
    tokenizer = Tokenizer.from_file(str(DATA / fixture / "tokenizer.json"))
    ids = tokenizer.encode((DATA / "perplexity.txt").read_text(encoding="utf-8")).ids
    if len(ids) != TOKENS:
        sys.exit(f"perplexity.txt has {len(ids)} tokens, not {TOKENS}")
    return ids


def negative_log_likelihoods(model, window: list[int]) -> np.ndarray:
    """-ln p of every token of ``window`` but the first, float64 [len(window) - 1]."""
    ids = torch.tensor([window])
    with torch.no_grad():
        scores = model(input_ids=ids, use_cache=False).logits[0, :-1].double().log_softmax(-1)
    return -scores.gather(1, ids[0, 1:, None])[:, 0].numpy()


def sliding(model, ids: list[int], length: int, stride: int) -> list[np.ndarray]:
    """The scored tokens of each window, in the order of the text."""
    scored, done = [], 1  # the first token has no context to be predicted from
    for begin in range(0, len(ids), stride):
        end = min(begin + length, len(ids))
        scored.append(negative_log_likelihoods(model, ids[begin:end])[done - end :])
        done = end
        if end == len(ids):
            break
    return scored


def loss_of_transformers(model, ids: list[int]) -> float:
    """The mean that transformers itself gives for a text in one window."""
    tokens = torch.tensor([ids])
    with torch.no_grad():
        return float(model(input_ids=tokens, labels=tokens, use_cache=False).loss)


def main() -> None:
    """Write the file."""
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    arrays = {}
    for fixture in FIXTURES:
        ids = read_ids(fixture)
        opener = transformers.AutoModelForCausalLM
        model = opener.from_pretrained(DATA / fixture, dtype=torch.float32, attn_implementation="eager").eval()
        for length, stride in WINDOWS:
            scored = sliding(model, ids, length, stride)
            nll = np.concatenate(scored)
            perplexity = float(np.exp(nll.mean()))
            arrays |= {
                f"{fixture}/window-{length}-stride-{stride}/{key}": value
                for key, value in {
                    "nll": nll,
                    "nll_sum": np.float64(nll.sum()),
                    "count": np.int64(len(nll)),
                    "perplexity": np.float64(perplexity),
                    "window_nll_sums": np.array([part.sum() for part in scored]),
                    "window_counts": np.array([len(part) for part in scored]),
                }.items()
            }
            counts = [len(part) for part in scored]
            print(f"{fixture}: window {length}, stride {stride}: {perplexity:.4f} over {len(nll)} tokens {counts}")
        if abs(loss_of_transformers(model, ids) - nll.mean()) > 1e-5:
            sys.exit(f"{fixture}: the loss of transformers is another one")
    arrays["ids"] = np.array(ids, np.int32)
    np.savez_compressed(Path(sys.argv[1]) if len(sys.argv) > 1 else DATA / "perplexity.npz", **arrays)


if __name__ == "__main__":
    main()
