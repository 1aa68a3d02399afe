"""Cubins to launch: what their modules hold, what fails alone, what is cached and shared."""

import os
import pickle
import random
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from kernelassay.compile import nvrtc
from kernelassay.compile.batch import joins, unit
from kernelassay.compile.classify import classify
from kernelassay.compile.cubins import CubinImage
from kernelassay.compile.identity import Cubin, digest
from kernelassay.compile.worker import Worker
from kernelassay.execute.cuda.build import build_cubins
from kernelassay.kernel import BuildFailure

pytestmark = pytest.mark.skipif(
    not nvrtc.available(), reason=f"NVRTC: {nvrtc.unavailable_reason()}"
)

SCALE = """
extern "C" __global__ void scale(const float* __restrict__ x, float* y, int n, float factor) {
    __shared__ float tile[64];
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    tile[threadIdx.x] = i < n ? x[i] : 0.0f;
    __syncthreads();
    if (i < n) y[i] = tile[63 - threadIdx.x] * factor;
}
extern "C" __global__ void clear(float* y, long long n) {
    if (blockIdx.x < n) y[blockIdx.x] = 0.0f;
}
void launch(const float* x, float* y, int n, float factor) {
    clear<<<n, 1>>>(y, n);
    scale<<<(n + 63) / 64, 64>>>(x, y, n, factor);
}
"""
TABLE = "__constant__ float bias[2] = {1.0f, 2.0f};\n" + SCALE.replace("* factor", "* bias[n & 1]")
COUNTER = "__device__ int calls = 0;\n" + SCALE.replace("* factor", "* ++calls")


def changed(before, after, source=SCALE):
    assert before in source, before
    return source.replace(before, after)


MUTANTS = {
    "original": SCALE,
    "bound": changed("if (i < n) y[i]", "if (i <= n) y[i]"),
    "barrier": changed("__syncthreads();", ""),
    "last": changed("63 -", "62 -"),
    "minus": changed("* factor", "- factor"),
    "clear": changed("= 0.0f;\n}\nvoid", "= 1.0f;\n}\nvoid"),
}
GRID = changed("(n + 63) / 64", "n / 64")


def functions_in(image):
    return {symbol.name for symbol in Cubin(image.path.read_bytes()).symbols}


def digests(image):
    cubin = Cubin(image.path.read_bytes())
    return {name: digest(cubin, [(name, linked)]) for name, linked in image.functions}


def refuse(self, program, extra, seconds):
    raise AssertionError("nothing is left to compile")


def test_an_image_names_functions_that_its_module_has_and_their_parameters(tmp_path):
    images = build_cubins(MUTANTS, tmp_path)
    assert list(images) == list(MUTANTS)
    assert len({image.path for image in images.values()}) == 1
    for image in images.values():
        assert image.kernels == ("scale", "clear")
        assert {linked for _, linked in image.functions} <= functions_in(image)
        assert image.parameters == (
            ("scale", ("const float*", "float*", "int", "float")),
            ("clear", ("float*", "long long")),
        )
    # Five of them have five ways to scale and one to clear, the last has another one to clear.
    assert len({linked for image in images.values() for _, linked in image.functions}) == 5 + 2


def test_a_kernel_has_the_same_code_in_a_batch_as_alone(tmp_path):
    keys = sorted(MUTANTS)
    random.Random(5).shuffle(keys)
    together = build_cubins({key: MUTANTS[key] for key in keys}, tmp_path / "a", jobs=2)
    alone = build_cubins(MUTANTS, tmp_path / "b", batch=1)
    assert len({image.path for image in alone.values()}) == len(MUTANTS)
    assert {k: digests(v) for k, v in together.items()} == {k: digests(v) for k, v in alone.items()}
    assert digests(together["bound"]) != digests(together["original"])
    assert digests(together["bound"])["clear"] == digests(together["original"])["clear"]


def test_a_source_that_fails_costs_only_itself(tmp_path):
    bad = {
        "name": changed("tile[threadIdx.x] =", "tiles[threadIdx.x] ="),
        "brace": changed("if (i < n) y[i]", "{ if (i < n) y[i]"),
        "shared": changed("tile[64]", "tile[64000]"),
        "no launch": SCALE.split("void launch", maxsplit=1)[0],
        "no kernel": "void launch(float* y) {}\n",
    }
    images = build_cubins(bad | MUTANTS, tmp_path)
    assert {key for key, image in images.items() if isinstance(image, BuildFailure)} == set(bad)
    assert 'identifier "tiles" is undefined' in images["name"].log
    assert "shared" in images["shared"].log
    assert "launch" in images["no launch"].log
    assert digests(images["bound"]) == digests(build_cubins(MUTANTS, tmp_path / "b")["bound"])


def test_a_source_that_crashes_the_compiler_costs_only_itself(tmp_path, monkeypatch):
    healthy = Worker.compile

    def fragile(self, program, extra, seconds):
        if "62 -" in program:
            healthy(self, "", (), seconds)
            os.kill(self._process.pid, signal.SIGSEGV)
        return healthy(self, program, extra, seconds)

    monkeypatch.setattr(Worker, "compile", fragile)
    images = build_cubins(MUTANTS, tmp_path)
    assert [key for key, image in images.items() if isinstance(image, BuildFailure)] == ["last"]
    assert images["last"].log.startswith("compiler crash (signal 11")


def test_images_are_cached_by_device_code_and_options(tmp_path, monkeypatch):
    first = build_cubins(MUTANTS, tmp_path)
    bad = {"bad": changed("float factor) {", "float fac) {")}
    failure = build_cubins(bad, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(Worker, "compile", refuse)
        assert build_cubins(MUTANTS, tmp_path) == first
        assert build_cubins(bad, tmp_path) == failure
        # Another launch or layout is the same device code.
        spaced = changed("* factor", " *  factor /* as given */")
        again = build_cubins({"grid": GRID, "spaced": spaced}, tmp_path)
        assert set(again.values()) == {first["original"]}
        patch.setattr(nvrtc, "OPTIONS", (*nvrtc.OPTIONS, "--use_fast_math"))
        with pytest.raises(AssertionError):
            build_cubins({"original": SCALE}, tmp_path)
    first["original"].path.unlink()
    assert isinstance(build_cubins({"original": SCALE}, tmp_path)["original"], CubinImage)


@pytest.mark.parametrize("source", [TABLE, COUNTER])
def test_sources_with_module_data_have_modules_of_their_own(tmp_path, source):
    data = {str(n): changed("63 -", f"{n} -", source) for n in (60, 61, 62)}
    images = build_cubins({"original": SCALE, **data, "minus": MUTANTS["minus"]}, tmp_path)
    paths = [images[key].path for key in data]
    assert len(set(paths)) == len(data)
    for key in data:
        cubin = Cubin(images[key].path.read_bytes())
        assert cubin.module_data()
        assert sorted(cubin.kernels()) == sorted(linked for _, linked in images[key].functions)
    assert not Cubin(images["minus"].path.read_bytes()).module_data()


def test_a_constant_table_is_seen_in_the_text_before_it_spoils_a_batch():
    assert not joins(unit("", TABLE))
    assert joins(unit("", SCALE))


def test_an_image_travels_between_processes(tmp_path):
    image = build_cubins({"original": SCALE}, tmp_path)["original"]
    assert pickle.loads(pickle.dumps(image)) == image


def test_builders_in_several_processes_share_a_folder(tmp_path):
    script = tmp_path / "build.py"
    script.write_text(
        textwrap.dedent(
            """
            import sys
            from pathlib import Path
            from tests.execute.test_cubins import MUTANTS, digests
            from kernelassay.execute.cuda.build import build_cubins

            images = build_cubins(MUTANTS, Path(sys.argv[1]), jobs=2)
            print(sorted((key, sorted(digests(image).items())) for key, image in images.items()))
            """
        )
    )
    root = Path(__file__).parents[2]
    command = [sys.executable, str(script), str(tmp_path / "cache")]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    runs = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root, env=environment)
        for _ in range(3)
    ]
    answers = [run.communicate()[0] for run in runs]
    assert [run.returncode for run in runs] == [0, 0, 0]
    assert len(set(answers)) == 1
    kept = [path.suffix for path in (tmp_path / "cache" / "cuda-images").iterdir()]
    assert set(kept) == {".cubin", ".json"}  # and nothing half written


def test_identification_leaves_what_can_be_launched(tmp_path, monkeypatch):
    pairs = [*((k, v) for k, v in MUTANTS.items() if k != "original"), ("grid", GRID)]
    classify(SCALE, pairs, cache=tmp_path, cubins=True, fixed={})
    with monkeypatch.context() as patch:
        patch.setattr(Worker, "compile", refuse)
        images = build_cubins({**MUTANTS, "grid": GRID}, tmp_path)
    assert {k: digests(v) for k, v in images.items() if k != "grid"} == {
        k: digests(v) for k, v in build_cubins(MUTANTS, tmp_path / "b").items()
    }


def test_code_that_was_told_sizes_is_not_what_is_launched(tmp_path):
    classify(SCALE, [("bound", MUTANTS["bound"])], cache=tmp_path, cubins=True, fixed={"n": 64})
    assert not (tmp_path / "cuda-images").exists()
    images = build_cubins({"original": SCALE}, tmp_path)
    assert re.fullmatch(r"[0-9a-f]+\.cubin", images["original"].path.name)
