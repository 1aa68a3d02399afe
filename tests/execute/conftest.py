from collections.abc import Callable

import numpy as np
import pytest

from kernelassay.execute.cpu import CpuDevice, build_original, build_runtime, find_compiler
from kernelassay.kernel import Launch, LaunchPlan, PointerArgument
from tests.execute.runs import NAN_PATTERN, Out, Ran


@pytest.fixture(scope="session")
def compiler():
    return find_compiler()


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory):
    return tmp_path_factory.mktemp("cpu-cache")


@pytest.fixture(scope="session")
def device(compiler, cache_dir):
    return CpuDevice(build_runtime(compiler, cache_dir), backstop_s=60)


@pytest.fixture(scope="session")
def image_of(compiler, cache_dir):
    """Device code -> image; a host function is added if there is none."""

    def build(source: str):
        if "void launch(" not in source:
            source += "\nvoid launch() {}\n"
        return build_original(source, cache_dir, compiler)

    return build


@pytest.fixture(scope="session")
def execute(device, image_of) -> Callable[..., Ran]:
    """Runs the only kernel of a source: arrays are operands, ``Out`` outputs, the rest scalars."""

    def run(source, grid, block, *arguments, shared=0, fuel=10**8, **conditions) -> Ran:
        image = image_of(source)
        buffers, packed = {}, []
        for index, argument in enumerate(arguments):
            name = f"arg{index}"
            if isinstance(argument, np.ndarray):
                buffer = device.buffer(name, argument.nbytes, role="operand")
                buffer.array[:] = argument.reshape(-1).view(np.uint8)
            elif isinstance(argument, Out):
                size = int(np.prod(argument.shape)) * np.dtype(argument.dtype).itemsize
                buffer = device.buffer(name, size, role="output")
                pattern = np.full(size // 4 + 1, NAN_PATTERN, np.uint32).view(np.uint8)
                buffer.array[:] = pattern[:size]
            else:
                packed.append(argument)
                continue
            buffers[name] = buffer
            packed.append(PointerArgument(name))
        launch = Launch(image.kernels[0], _three(grid), _three(block), shared, tuple(packed))
        try:
            result = device.run(image, LaunchPlan((), (launch,)), buffers, fuel=fuel, **conditions)
            return Ran(
                result,
                [
                    buffers[f"arg{i}"].array.copy().view(a.dtype).reshape(a.shape)
                    for i, a in enumerate(arguments)
                    if isinstance(a, Out)
                ],
                [
                    buffers[f"arg{i}"].array.copy().view(a.dtype).reshape(a.shape)
                    for i, a in enumerate(arguments)
                    if isinstance(a, np.ndarray)
                ],
            )
        finally:
            for buffer in buffers.values():
                buffer.release()

    return run


def _three(size):
    size = (size,) if isinstance(size, int) else tuple(size)
    return (*size, 1, 1)[:3]
