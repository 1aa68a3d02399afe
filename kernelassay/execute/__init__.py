"""Executors: running candidate kernels and grading what they leave behind."""
