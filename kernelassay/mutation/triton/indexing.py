"""The indexing family of Triton kernels: which program, block, element, tensor."""

from __future__ import annotations

from kernelassay.mutation.rule import Rule
from kernelassay.mutation.triton.indexing_addresses import ADDRESSES
from kernelassay.mutation.triton.indexing_blocks import BLOCKS

RULES: tuple[Rule, ...] = (*BLOCKS, *ADDRESSES)
