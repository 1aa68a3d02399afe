import random
import re

import pytest

from kernelassay.compile import nvrtc
from kernelassay.compile.batch import (
    Reference,
    apart_as_whole,
    image_of,
    linked,
    place_batch,
    place_lone,
    program,
    unit,
)
from kernelassay.compile.identity import Cubin, digest
from kernelassay.compile.nvrtc import compile_cubin, compile_program
from kernelassay.compile.worker import Worker
from kernelassay.errors import KernelSyntaxError, ToolchainError

pytestmark = pytest.mark.skipif(
    not nvrtc.available(), reason=f"NVRTC: {nvrtc.unavailable_reason()}"
)


@pytest.fixture(scope="module")
def worker():
    worker = Worker()
    yield worker
    worker.close()


def lone(worker, part):
    return image_of(part, place_lone(worker, part))


def together(worker, units, original, expected):
    placed = place_batch(worker, units, Reference(original, expected))
    return {part.key: image_of(part, made) for part, made in placed}


def identity(source):
    part = unit("", source)
    made = compile_program(program([(0, part)]))
    assert made.ok, made.log
    return digest(Cubin(made.image), [(name, linked(name, 0)) for name in part.kernels])


def edit(source, *changes):
    for before, after in changes:
        assert before in source, before
        source = source.replace(before, after)
    return source


SAME = [
    ("softmax", [("float top = -INFINITY;", "/* the top */ float top = -INFINITY;")]),
    ("softmax", [("partial[t]", "partial [ t ]")]),
    ("softmax", [("total", "whole")]),
    ("softmax", [("block_sum", "reduce_block")]),
    ("softmax", [("s > 0", "s >= 1")]),
    ("softmax", [("fmaxf(partial[t], partial[t + s])", "fmaxf(partial[t + s], partial[t])")]),
    ("softmax", [("i < cols", "cols > i")]),
    ("matmul", [("as[", "tile_a["), ("bs[", "tile_b[")]),
    ("matmul", [("row < m && col < n", "col < n && row < m")]),
    ("matmul", [("++i", "i++")]),
    ("two_step_sum", [("stride", "step"), ("lane", "in_warp")]),
]
DIFFERENT = [
    ("softmax", [("i < cols; i += BLOCK) top", "i <= cols; i += BLOCK) top")]),
    ("softmax", [("partial[t] = value;\n    __syncthreads();", "partial[t] = value;")]),
    ("softmax", [("-INFINITY", "0.0f")]),
    ("softmax", [("expf(in[i] - top);", "__expf(in[i] - top);")]),
    ("matmul", [("[TILE + 1]", "[TILE]")]),
    ("matmul", [("int m, int n, int k) {\n    __s", "int m, int n, long long k) {\n    __s")]),
    ("two_step_sum", [("__launch_bounds__(THREADS)\ncombine", "__launch_bounds__(256)\ncombine")]),
    ("two_step_sum", [("__shfl_down_sync", "__shfl_xor_sync")]),
    ("two_step_sum", [("warps[32]", "warps[31]")]),
    ("blur_table", [("0.5f", "0.6f")]),
    ("blur_table", [("weights[3] = {", "weights[4] = {")]),
]


@pytest.mark.parametrize(("stem", "changes"), SAME)
def test_an_edit_without_effect_keeps_the_digest(kernel, stem, changes):
    source = kernel(stem)
    changed = edit(source, *changes)
    assert changed != source
    assert identity(changed) == identity(source)


@pytest.mark.parametrize(("stem", "changes"), DIFFERENT)
def test_an_edit_with_effect_changes_the_digest(kernel, stem, changes):
    source = kernel(stem)
    assert identity(edit(source, *changes)) != identity(source)


def mutants_of(source):
    """Every single-token swap of a small set that applies to the device code."""
    swaps = [("<", "<="), ("+", "-"), ("-", "+"), ("0.0f", "1.0f"), ("&&", "||"), ("*", "+")]
    swaps += [("__syncthreads();", ";"), (">", ">=")]
    body = source.index("{")
    end = source.index("void launch")
    for before, after in swaps:
        for match in re.finditer(rf"(?<=[ \]]){re.escape(before)}(?=[ ;,])", source):
            if body < match.start() < end:
                yield source[: match.start()] + after + source[match.end() :]
    yield from (source.replace("[TILE + 1]", f"[TILE + {pad}]") for pad in (2, 3))


@pytest.mark.parametrize("stem", ["softmax", "matmul", "half_scale"])
def test_a_digest_from_a_shuffled_batch_is_the_lone_digest(kernel, worker, stem):
    source = kernel(stem)
    original = unit("original", source)
    reference = lone(worker, original)
    assert not reference.lone
    units = [unit(str(number), text) for number, text in enumerate(mutants_of(source))]
    random.Random(7).shuffle(units)
    units = units[:8]
    batch = together(worker, units, original, reference.digest)
    assert batch == {part.key: lone(worker, part) for part in units}
    assert len({image.digest for image in batch.values()}) > 1


def two_kernels(kernel):
    """Two kernels and no module data, which a constant of the language is."""
    return edit(kernel("two_step_sum"), ("constexpr int THREADS = 128;", "#define THREADS 128"))


def test_a_kernel_in_common_is_compiled_once_and_keeps_every_digest(kernel, worker):
    source = two_kernels(kernel)
    original = unit("original", source)
    expected = lone(worker, original).digest
    changes = {
        "second": [("v * scale", "v + scale")],
        "first": [("v += x[i]", "v -= x[i]")],
        "both": [("v * scale", "v - scale"), ("v += x[i]", "v -= x[i]")],
        "helper": [("__shfl_down_sync", "__shfl_xor_sync")],
    }
    units = [unit(key, edit(source, *some)) for key, some in changes.items()]
    placed = list(place_batch(worker, units, Reference(original, expected)))
    assert {part.key: image_of(part, made) for part, made in placed} == {
        part.key: lone(worker, part) for part in units
    }
    # Of the first kernel there are three texts, of the second four; the original has one of each.
    assert len(placed[0][1].cubin.kernels()) == 3 + 4


def test_a_kernel_without_the_others_has_the_code_it_has_with_them(kernel, worker):
    original = unit("original", two_kernels(kernel))
    assert apart_as_whole(worker, Reference(original, lone(worker, original).digest))
    assert not apart_as_whole(worker, Reference(original, "the digest of other code"))


def test_module_data_asks_for_a_program_of_its_own(kernel, worker):
    assert lone(worker, unit("", kernel("blur_table"))).lone
    assert not lone(worker, unit("", kernel("matmul"))).lone


def test_a_neighbour_with_module_data_is_noticed_and_the_batch_redone(kernel, worker):
    source = kernel("matmul")
    table = edit(
        source,
        ("extern", "__constant__ float bias[2] = {1.0f, 2.0f};\nextern"),
        ("float sum = 0.0f;", "float sum = bias[m & 1];"),
    )
    original = unit("original", source)
    expected = lone(worker, original).digest
    units = [unit("table", table), unit("plus", edit(source, ("sum = 0.0f", "sum = 1.0f")))]
    batch = together(worker, units, original, expected)
    assert batch["table"].lone
    assert batch == {part.key: lone(worker, part) for part in units}


def test_a_function_whose_address_is_taken_is_noticed():
    source = (
        "__device__ float twice(float v) { return 2 * v; }\n"
        'extern "C" __global__ void k(float* y) { float (*f)(float) = USE; y[0] = f(y[1]); }\n'
        "void launch(float* y) { k<<<1, 1>>>(y); }\n"
    )
    assert unit("", source.replace("USE", "twice")).takes_address
    assert not unit("", source.replace("USE", "twice(1)")).takes_address


def test_a_cubin_keeps_the_kernels_own_names(kernel):
    assert sorted(Cubin(compile_cubin(kernel("two_step_sum"))).kernels()) == [
        "combine",
        "partial_sums",
    ]


def test_an_error_names_the_line_of_the_source(kernel):
    with pytest.raises(KernelSyntaxError, match=r"kernel\(25\).*tip"):
        compile_cubin(edit(kernel("softmax"), ("partial[t] = top;", "partial[t] = tip;")))


@pytest.mark.parametrize("image", [b"", b"\x7fELF", b"\x7fELF\x02\x01" + b"\xff" * 100])
def test_bytes_that_are_no_cubin_are_refused(image):
    with pytest.raises(ToolchainError):
        Cubin(image)


def test_a_truncated_cubin_is_refused(kernel):
    image = compile_cubin(kernel("matmul"))
    with pytest.raises(ToolchainError):
        Cubin(image[: len(image) // 2])
