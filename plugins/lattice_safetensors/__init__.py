"""The loader ``safetensors``: model directories in Hugging Face and MLX notation, and LoRA adapters, by memory map."""
