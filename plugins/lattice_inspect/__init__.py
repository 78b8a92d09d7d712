"""The command ``inspect``: says what a model directory holds, without loading weights."""
