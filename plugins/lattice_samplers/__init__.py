"""Samplers of Lattice: ``default`` (penalty, temperature, top-k, top-p) and ``greedy``."""
