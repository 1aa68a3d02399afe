"""Mutation analysis for the correctness checkers of GPU-kernel benchmarks."""

__version__ = "0.1.0"
