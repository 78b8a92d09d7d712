"""The options that the core owns, in the groups of ``lattice --help``.

The sampling defaults and the names in ``aliases`` and ``env_aliases`` are those of the servers and shells that Lattice
follows. Bounds are inclusive; where a limit is "above 0" the minimum is 0.000001.
"""

from __future__ import annotations

from lattice_core.descriptors import Option

_ABOVE_ZERO = 0.000001

PARTS = (
    Option("frontend", "the way in; default: stdio with --prompt, --json or --serve, else openai", metavar="NAME"),
    Option("backend", "what runs the model; default: mlx", metavar="NAME"),
    Option("loader", "the storage format; default: found out from the files", metavar="NAME"),
    Option("sampler", "what chooses tokens", default="default", metavar="NAME"),
    Option("chat-format", "how messages become a prompt; default: found out from the model", metavar="NAME"),
)

MODEL = (
    Option(
        "model",
        "a pulled model's name, a directory or file, or ORG/NAME from a local cache; default: the model pulled last",
        metavar="NAME|PATH",
        env_aliases=("LATTICE_SERVE_MODEL",),
    ),
    Option("model-dir", "the model's directory or file; wins over --model", type="path", metavar="DIR"),
    Option(
        "tokenizer-dir",
        "take tokenizer.json from here instead of from the model",
        type="path",
        metavar="DIR",
        aliases=("tokenizer",),
    ),
    Option(
        "lora",
        "an adapter beside the model, chosen by requests that name it; without NAME= it serves all that name the model",
        default=(),
        repeatable=True,
        metavar="[NAME=]PATH",
    ),
)

SERVER = (
    Option("host", "address to listen on", default="127.0.0.1"),
    Option(
        "port",
        "port to listen on; 0 takes a free one",
        type="int",
        default=11435,
        minimum=0,
        maximum=65535,
        env_aliases=("LATTICE_SERVE_PORT",),
    ),
    Option(
        "drain-seconds",
        "how long running requests may finish after a signal to stop",
        type="float",
        default=5.0,
        minimum=0,
        maximum=86400,
        metavar="S",
    ),
)

TEXT = (
    Option("prompt", "answer this one prompt and leave", metavar="TEXT"),
    Option("json", "events as JSON lines on stdout", type="bool", default=False),
    Option("serve", "with --json: read requests from stdin until it ends", type="bool", default=False),
)

GENERATION = (
    Option("max-tokens", "tokens of an answer at most", type="int", default=512, minimum=1, maximum=2**31 - 1, metavar="N"),
    Option("temperature", "0 always takes the likeliest token", type="float", default=0.7, minimum=0, maximum=100, metavar="T"),
    Option("top-k", "choose among the K likeliest tokens; 0 is off", type="int", default=50, minimum=0, metavar="K"),
    Option(
        "top-p",
        "choose among the likeliest tokens that make up this probability; 1 is off",
        type="float",
        default=0.9,
        minimum=_ABOVE_ZERO,
        maximum=1,
        metavar="P",
    ),
    Option(
        "repetition-penalty",
        "makes tokens of prompt and answer less likely; 1 is off",
        type="float",
        default=1.1,
        minimum=_ABOVE_ZERO,
        maximum=100,
        metavar="R",
    ),
    Option(
        "seed", "for answers that can be repeated; default: a fresh one each time", type="int", minimum=0, maximum=2**64 - 1
    ),
)

LIMITS = (
    Option("context", "tokens of prompt and answer together; default: the model's", type="int", minimum=1, metavar="N"),
    Option(
        "max-batch", "answers that are generated at the same time", type="int", default=16, minimum=1, maximum=4096, metavar="N"
    ),
    Option("max-queue", "requests that may wait", type="int", default=32, minimum=0, maximum=1_000_000, metavar="N"),
    Option("memory", "bytes for weights and running requests together, such as 8G", type="bytes", minimum=1, metavar="BYTES"),
    Option(
        "max-resident-adapters",
        "adapters that may be loaded at the same time",
        type="int",
        default=32,
        minimum=1,
        maximum=4096,
        metavar="N",
    ),
    Option(
        "max-resident-adapter-bytes",
        "memory for adapters together, a part of --memory",
        type="bytes",
        default=512 * 1024 * 1024,
        minimum=1,
        metavar="BYTES",
    ),
    Option("dtype", "of activations; default: the device's", choices=("float32", "float16", "bfloat16")),
)

DIAGNOSTICS = (
    Option(
        "config",
        "configuration file; default: ./lattice.toml, then ~/.config/lattice/lattice.toml",
        type="path",
        metavar="FILE",
    ),
    Option("debug", "tracebacks and debug messages", type="bool", default=False),
)

CORE_GROUPS: tuple[tuple[str, tuple[Option, ...]], ...] = (
    ("parts", PARTS),
    ("model", MODEL),
    ("server", SERVER),
    ("text", TEXT),
    ("generation", GENERATION),
    ("limits", LIMITS),
    ("configuration", DIAGNOSTICS),
)

CORE_OPTIONS: tuple[Option, ...] = tuple(option for _, options in CORE_GROUPS for option in options)
