"""Seeded fuzzing of single operators, after "The Correctness Illusion" (arXiv 2606.20128)."""
