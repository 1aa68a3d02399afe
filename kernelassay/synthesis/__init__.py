"""Suites of inputs: chosen on the kill matrix, scored on held-out mutants, and exported."""
