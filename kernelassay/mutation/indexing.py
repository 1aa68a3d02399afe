"""Indexing faults: which element a thread reads, writes or works on."""

from __future__ import annotations

from kernelassay.mutation.indexing_layout import RULES as LAYOUT
from kernelassay.mutation.indexing_subscripts import RULES as SUBSCRIPTS
from kernelassay.mutation.indexing_threads import RULES as THREADS
from kernelassay.mutation.indexing_windows import RULES as WINDOWS
from kernelassay.mutation.rule import Rule

RULES: tuple[Rule, ...] = (*THREADS, *SUBSCRIPTS, *LAYOUT, *WINDOWS)
