"""The loader ``gguf``: reads GGUF files (versions 2 and 3, little-endian) with numpy and a memory map."""
