"""Names that belong to the first-party distribution and to the command line itself, by kind of part.

They stay reserved while a first-party plugin is disabled or broken, so that no stranger takes its place unseen.
"""

from __future__ import annotations

RESERVED: dict[str, frozenset[str]] = {
    "loader": frozenset({"gguf", "safetensors", "q4", "scripted"}),
    "backend": frozenset({"mlx", "scripted"}),
    "architecture": frozenset({"llama", "qwen2", "qwen3", "qwen3-moe", "qwen3-5", "qwen3-5-moe"}),
    "sampler": frozenset({"default", "greedy", "scripted-raises", "scripted-ignores-masks"}),
    "grammar": frozenset({"scripted-blocks", "scripted-alphabet"}),
    "chat-format": frozenset({"template", "chatml"}),
    "frontend": frozenset({"openai", "stdio", "repl"}),
    "source": frozenset({"pypi", "huggingface"}),
    "command": frozenset({"serve", "chat", "run", "plugins", "help", "pull", "models", "inspect", "quantize", "eval"}),
    "telemetry": frozenset(),
}

COMMANDS_OF_THE_CORE = frozenset({"serve", "chat", "run", "plugins", "help"})
"""Commands that no plugin may bring, first-party or not."""
