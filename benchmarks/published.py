"""Figures of arXiv 2609.22220 on levels 1 and 2 (one H100): facts of the paper."""

from __future__ import annotations

from kernelassay.analysis.score import Share
from kernelassay.protocols import LOG_UNIFORM, V01, VERIFIED, VERIFIED_INPUTS_AT_V01
from kernelassay.report.ladder import PUBLISHED

STAGES = {
    "admitted": 188,
    "generated": 10303,
    "stillborn": 1594,
    "duplicate": 279,
    "equivalent": 177,
    "distinct": 8253,
    "witnessed": 7384,
}
MISSED = Share(1248, 7384)
FAMILY_MISSED = {
    "arithmetic": (3349, "8.7%"),
    "indexing": (749, "14.4%"),
    "semantic": (858, "14.9%"),
    "boundary": (1735, "22.9%"),
    "synchronization": (400, "27.8%"),
    "precision": (271, "78.6%"),
}
DETECTED = {
    V01.name: ("80.0%", "0"),
    VERIFIED_INPUTS_AT_V01.name: ("84.0%", "0"),
    LOG_UNIFORM.name: ("86.2%", "107"),
    VERIFIED.name: ("88.5%", "0"),
}
"""Detected of one denominator of 8,215 mutants, and correct kernels rejected."""
DETECTED_BY_TWO, DETECTED_BY_TARGETED = "98.1%", "99.9%"
"""The same by two optimised inputs, and by all targeted ones."""
BLIND = {"kernelbench-1/23_Softmax": 28, "kernelbench-1/24_LogSoftmax": 9}
"""Tolerance-blind survivors, of all mutants."""
SUITES = {
    "": {1: "87.1%", 2: "98.0%", 3: "99.5%", 5: "100.0%"},
    "id": {1: "84.5%", 2: "94.8%", 3: "96.4%", 5: "96.6%"},
}
"""What a greedy suite of so many inputs detects: of all mutants, and of the half held out by id."""
OFFICIAL_BESIDE_SUITES = {"": "83.1%", "id": "82.9%"}
"""What the five official inputs detect of the same."""
LADDER = PUBLISHED
"""Killed and validity by rung of the knowledge ladder, which `kernelassay ladder` prints."""
