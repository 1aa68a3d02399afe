"""What the options of ``run`` say about where kernels run."""

from __future__ import annotations

import pytest

from kernelassay import executors
from kernelassay.cli import invoke
from kernelassay.cli.executor import Place, chosen_executor
from kernelassay.errors import ToolchainError, UsageError
from kernelassay.execute.cuda import toolbox
from kernelassay.execute.cuda.options import CudaOptions
from kernelassay.executors import LANES_PER_DEVICE


@pytest.fixture
def two_gpus(monkeypatch):
    monkeypatch.setattr(toolbox, "devices", lambda: ("a GPU", "a GPU"))


@pytest.mark.parametrize(
    ("draw", "tf32", "devices"), [("cpu", False, None), (None, True, None), (None, False, "0")]
)
def test_options_of_a_gpu_are_refused_on_the_cpu(draw, tf32, devices):
    with pytest.raises(UsageError, match="of no meaning on the CPU"):
        chosen_executor("cpu", draw, tf32, devices)
    assert chosen_executor("cpu", None, False, None) == Place()


@pytest.mark.parametrize(("asked", "found"), [(None, (0, 1)), ("1", (1,)), ("1, 0,1", (1, 0))])
def test_devices_are_named_by_number_and_all_are_used_by_default(two_gpus, asked, found):
    place = chosen_executor("cuda", None, False, asked)
    assert place.devices == found
    assert place.lanes == LANES_PER_DEVICE * len(found)


@pytest.mark.parametrize("asked", ["2", "", "x", "-1", "0;1", "0,"])
def test_a_device_that_is_not_there_is_refused_by_name(two_gpus, asked):
    with pytest.raises(UsageError, match="does not name GPUs") as error:
        chosen_executor("cuda", None, False, asked)
    assert "0 to 1" in error.value.hint


def test_a_machine_without_a_gpu_is_told_so(monkeypatch):
    def none() -> tuple[str, ...]:
        raise ToolchainError("no CUDA device is found")

    monkeypatch.setattr(toolbox, "devices", none)
    with pytest.raises(ToolchainError, match="no CUDA device"):
        chosen_executor("cuda", None, False, None)


def test_lanes_share_a_device_and_are_no_part_of_what_a_session_records(two_gpus, monkeypatch):
    place = chosen_executor("cuda", "cpu", True, None).sharing(True, 7)
    assert place.cuda == CudaOptions(official=True, draw="cpu", tf32=True, lanes=4)
    monkeypatch.setattr("kernelassay.compile.nvrtc.version", lambda: "13.0")
    facts = executors.facts(place.cuda)
    assert (facts["executor"], facts["device"]) == ("cuda", "a GPU")
    assert facts["cuda"] == {"draw": "cpu", "tf32": True}
    recorded = executors.recorded({**facts, "scale": "official"})
    assert recorded == CudaOptions(official=True, draw="cpu", tf32=True)


def test_a_gpu_is_one_of_those_that_the_environment_shows(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2, GPU-5e1")
    assert [toolbox.visible(number) for number in (0, 1)] == ["2", "GPU-5e1"]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert toolbox.visible(1) == "1"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--tf32"], "of no meaning on the CPU"),
        (["--executor", "cuda", "--engine", "ray", "--devices", "1"], "Ray shares out"),
        (["--ray-address", "head:6379"], "add --engine ray"),
    ],
)
def test_options_that_do_not_fit_are_told_before_anything_is_executed(
    two_gpus, monkeypatch, capsys, options, reason
):
    def shrunk(problems):
        raise AssertionError("problem code is executed")

    monkeypatch.setattr("kernelassay.cli.run.shrunk", shrunk)
    assert invoke(["run", "suite/relu", "--shrink", *options]) != 0
    assert reason in capsys.readouterr().err


def test_the_address_of_a_cluster_in_the_environment_is_nothing_to_a_run_on_this_machine(
    monkeypatch, tmp_path, capsys
):
    (tmp_path / "other").touch()
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    assert invoke(["run", "suite/relu", "--session", str(tmp_path)]) == 1
    assert "the directory is not empty" in capsys.readouterr().err
