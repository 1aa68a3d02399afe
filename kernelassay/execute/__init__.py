"""Executors: how compiled kernels run."""
