"""Scans in both styles agree with float64 and are clean in the checked build."""

from __future__ import annotations

import pytest

from kernelassay.kernel import OPTIMISED, PLAIN
from tests.substrate.harness import Bench
from tests.substrate.op_cases import SCAN
from tests.substrate.opcheck import check


@pytest.mark.parametrize("style", (PLAIN, OPTIMISED))
@pytest.mark.parametrize("name", SCAN)
def test_scans_agree_with_float64_and_have_no_findings(name: str, style: str, bench: Bench) -> None:
    check(SCAN[name], style, bench)
