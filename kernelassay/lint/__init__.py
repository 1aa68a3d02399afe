"""Lint: what makes a problem unable to referee kernels, found on its reference alone."""

from kernelassay.lint.finding import KINDS, Finding, Options, Report, Skipped
from kernelassay.lint.pool import lint

__all__ = ["KINDS", "Finding", "Options", "Report", "Skipped", "lint"]
