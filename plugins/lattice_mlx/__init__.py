"""The backend `mlx`: runs models with MLX on Apple GPUs, NVIDIA GPUs and CPUs."""
