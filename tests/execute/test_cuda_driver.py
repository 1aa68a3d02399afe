"""What the driver's answers mean, told by a driver that is none: no CUDA is needed."""

from __future__ import annotations

import threading
from collections import OrderedDict
from types import SimpleNamespace

import pytest

from kernelassay import cell
from kernelassay.compile.cubins import CubinImage
from kernelassay.execute.cuda import driver as drivers
from kernelassay.execute.cuda.driver import Driver, FaultError, Watchdog


class Code(int):
    name = ""


def code(value: int, name: str = "") -> Code:
    made = Code(value)
    made.name = name
    return made


SUCCESS = code(0)


@pytest.fixture
def driver():
    """A driver whose modules are the bytes they were loaded from; ``unloaded`` has those gone."""
    made = Driver.__new__(Driver)
    made._own, made._modules, made._functions = {}, OrderedDict(), {}
    made.unloaded = []
    made._driver = SimpleNamespace(
        cuModuleLoadData=lambda data: (SUCCESS, data),
        cuModuleGetFunction=lambda module, name: (SUCCESS, (module, name)),
        cuModuleUnload=lambda module: made.unloaded.append(module) or (SUCCESS,),
    )
    return made


def outcome(driver: Driver, name: str) -> str:
    with pytest.raises(FaultError) as raised:
        driver._checked((code(1, name),))
    return raised.value.outcome


def test_what_a_kernel_does_to_itself_is_its_outcome(driver):
    assert outcome(driver, "CUDA_ERROR_ILLEGAL_ADDRESS") == cell.ILLEGAL_ADDRESS
    assert outcome(driver, "CUDA_ERROR_LAUNCH_FAILED") == cell.CRASH
    assert outcome(driver, "CUDA_ERROR_INVALID_VALUE") == cell.LAUNCH_FAILURE


@pytest.mark.parametrize("name", ["ECC_UNCORRECTABLE", "DEVICE_UNAVAILABLE", "INVALID_HANDLE"])
def test_what_the_machine_does_says_nothing_of_a_kernel(driver, name):
    assert outcome(driver, f"CUDA_ERROR_{name}") == cell.INFRASTRUCTURE


def test_our_own_kernels_stay_loaded_however_many_others_come(driver, tmp_path, monkeypatch):
    monkeypatch.setattr(drivers, "_LOADED_MODULES", 2)
    names = ["own", "a", "b", "c"]
    for name in names:
        (tmp_path / name).write_text(name)
    driver.own(tmp_path / "own", "survey", ())
    for name in names[1:]:
        driver.function(CubinImage(tmp_path / name, (("k", "k"),), (("k", ()),)), "k")
    assert driver.unloaded == [b"a"]


def test_who_is_past_a_limit_does_nothing_more(monkeypatch):
    told, passed, killed = threading.Event(), threading.Event(), threading.Event()
    go_on = threading.Event()
    monkeypatch.setattr(drivers.os, "kill", lambda pid, signal: killed.set())

    def expired() -> None:
        told.set()
        assert go_on.wait(30)

    watchdog = Watchdog()

    def wait() -> None:
        with watchdog.limit(0.0, expired):
            assert told.wait(30)
        passed.set()

    thread = threading.Thread(target=wait)
    thread.start()
    assert told.wait(30)
    assert not passed.wait(0.1)
    go_on.set()
    assert killed.wait(30)
    thread.join()
