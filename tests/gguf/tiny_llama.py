"""A complete GGUF model of a few kilobytes, made from a seed, to be varied by tests."""

import numpy as np

HIDDEN, INNER, HEADS, KV_HEADS, HEAD, LAYERS = 64, 96, 4, 2, 16, 2


def byte_characters():
    """The 256 visible characters of byte-level BPE, by byte: printable Latin-1 as it is, the others from U+0100 on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    table = {byte: chr(byte) for byte in printable} | {byte: chr(256 + place) for place, byte in enumerate(others)}
    return [table[byte] for byte in range(256)]


TOKENS = ["<|end|>", "<|start|>", "<think>", *byte_characters(), "he", "ll", "hell", "hello", "Ġw"]
MERGES = ["h e", "l l", "he ll", "hell o", "Ġ w"]
VOCABULARY = 272


def metadata(**changes):
    """Keys with dots written as two underscores are changed; None removes one."""
    pairs = {
        "general.architecture": ("str", "llama"),
        "llama.block_count": ("u32", LAYERS),
        "llama.embedding_length": ("u32", HIDDEN),
        "llama.feed_forward_length": ("u32", INNER),
        "llama.attention.head_count": ("u32", HEADS),
        "llama.attention.head_count_kv": ("u32", KV_HEADS),
        "llama.attention.layer_norm_rms_epsilon": ("f32", 1e-5),
        "llama.context_length": ("u64", 512),
        "llama.rope.freq_base": ("f32", 50000.0),
        "tokenizer.ggml.model": ("str", "gpt2"),
        "tokenizer.ggml.pre": ("str", "smollm"),
        "tokenizer.ggml.tokens": ("[str]", TOKENS),
        "tokenizer.ggml.token_type": ("[i32]", [3, 3, 4] + [1] * (len(TOKENS) - 3)),
        "tokenizer.ggml.merges": ("[str]", MERGES),
        "tokenizer.ggml.bos_token_id": ("u32", 1),
        "tokenizer.ggml.eos_token_id": ("u32", 0),
    }
    for key, value in changes.items():
        name = key.replace("__", ".")
        if value is None:
            del pairs[name]
        else:
            pairs[name] = value
    return pairs


def shapes():
    """Row-major shapes by the names in the file."""
    layer = {
        "attn_norm.weight": (HIDDEN,),
        "attn_q.weight": (HEADS * HEAD, HIDDEN),
        "attn_k.weight": (KV_HEADS * HEAD, HIDDEN),
        "attn_v.weight": (KV_HEADS * HEAD, HIDDEN),
        "attn_output.weight": (HIDDEN, HEADS * HEAD),
        "ffn_norm.weight": (HIDDEN,),
        "ffn_gate.weight": (INNER, HIDDEN),
        "ffn_up.weight": (INNER, HIDDEN),
        "ffn_down.weight": (HIDDEN, INNER),
    }
    found = {"token_embd.weight": (VOCABULARY, HIDDEN), "output_norm.weight": (HIDDEN,)}
    for number in range(LAYERS):
        found |= {f"blk.{number}.{name}": shape for name, shape in layer.items()}
    return found


def tensors(**extra):
    """All tensors in F32; ``extra`` adds some (dots written as two underscores), None removes one."""
    random = np.random.default_rng(7)
    found = {name: ("F32", shape, random.standard_normal(shape, np.float32).tobytes()) for name, shape in shapes().items()}
    for key, value in extra.items():
        name = key.replace("__", ".")
        if value is None:
            del found[name]
        else:
            found[name] = value
    return found
