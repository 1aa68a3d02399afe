"""How kernel texts are run: on which device, in what surroundings, with which limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from kernelassay.errors import unknown_name

Device = Literal["interpreter", "cuda", "numpy"]
DEVICES: tuple[Device, ...] = get_args(Device)
SLACK = 1 << 20
"""How far outside of a buffer an access is a finding and no fault: that of the CPU executor."""

Surroundings = Literal["finite", "nan"]
Undefined = Literal["zero", "nan"]


@dataclass(frozen=True, slots=True)
class Options:
    """What a worker needs to know.

    ``"numpy"`` texts get arrays; ``"interpreter"`` and ``"cuda"`` ones torch tensors, on the CPU
    under Triton's interpreter or on a GPU. ``gpu`` is a value for ``CUDA_VISIBLE_DEVICES`` ("" for
    that of this process). A run may take ``seconds`` of wall time, on a GPU without what the
    compiler takes, which may have ``compile_seconds``; the process may map ``memory_bytes`` beyond
    what it starts with, and PyTorch take ``device_bytes`` of a GPU.

    ``surroundings`` names what memory around tensors reads as (``cpu.device.PATTERNS``),
    ``undefined`` what the interpreter gives masked lanes of a load without ``other`` (integers are
    0 either way). The ``texts`` used last stay loaded.
    """

    device: Device
    seconds: float = 10.0
    compile_seconds: float = 120.0
    memory_bytes: int = 4 << 30
    surroundings: Surroundings = "finite"
    undefined: Undefined = "zero"
    gpu: str = ""
    texts: int = 64
    device_bytes: int = 16 << 30

    def __post_init__(self) -> None:
        for kind, value, known in (
            ("device", self.device, DEVICES),
            ("surroundings", self.surroundings, get_args(Surroundings)),
            ("value of undefined lanes", self.undefined, get_args(Undefined)),
        ):
            if value not in known:
                raise unknown_name(kind, value, known)
