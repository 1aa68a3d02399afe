from pathlib import Path

import pytest

KERNELS = Path(__file__).parent / "kernels"


@pytest.fixture
def kernel():
    """Reads one of the test kernels by its stem."""
    return lambda stem: (KERNELS / f"{stem}.cu").read_text()
