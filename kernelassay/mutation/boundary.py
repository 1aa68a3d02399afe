"""The boundary family: guards, padding tests, loops, tails, launch geometry, windows."""

from __future__ import annotations

from kernelassay.mutation import (
    boundary_guards,
    boundary_launch,
    boundary_loops,
    boundary_tails,
    boundary_windows,
)
from kernelassay.mutation.rule import Rule

#: All rules of the family in the catalogue's order.
RULES: tuple[Rule, ...] = (
    *boundary_guards.RULES,
    *boundary_windows.HALO_RULES,
    *boundary_loops.LOOP_RULES,
    *boundary_tails.RULES,
    *boundary_launch.LAUNCH_RULES,
    boundary_loops.FIRST_ELEMENT,
    boundary_loops.LAST_ELEMENT,
    boundary_loops.LAST_BLOCK,
    boundary_loops.POWER_OF_TWO,
    boundary_windows.WINDOW_CLIP,
    boundary_windows.TILE_EDGE,
    boundary_loops.ROUND_DOWN,
    boundary_loops.EARLY_EXIT,
    boundary_windows.EMPTY_SLICE,
)
