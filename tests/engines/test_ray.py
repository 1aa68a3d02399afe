"""A campaign on a Ray cluster yields the digest of a local run, whatever dies under way."""

import itertools
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from kernelassay import campaign as campaigns
from kernelassay.engines import likeness as likenesses
from kernelassay.engines import ray as engines
from kernelassay.engines.ray import RayEngine
from kernelassay.errors import EngineError, ToolchainError, UsageError
from kernelassay.mutation import select
from kernelassay.plan import PlanOptions
from kernelassay.session import Session
from kernelassay.suite import suite_problems
from tests.test_campaign import Silent

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
# One cluster for all tests of this file, also where several processes share out the tests.
pytestmark = pytest.mark.xdist_group("ray")
cluster_utils = pytest.importorskip("ray.cluster_utils")
ray = pytest.importorskip("ray")

RULES = ("barrier-delete", "loop-start-plus-one", "max-min-swap")
NAMES = ("suite/softmax_rows", "suite/relu")
INPUTS = 4
SECONDS = 240  # far more than anything here takes
NODE = {"num_cpus": 1, "object_store_memory": 80 << 20}
# A node that is gone is to be missed soon.
HEALTH = {
    "health_check_initial_delay_ms": 1000,
    "health_check_period_ms": 500,
    "health_check_failure_threshold": 4,
}


def campaign():
    problems = tuple(p for p in suite_problems() if p.id in NAMES)
    # The backend that starts no processes of its own compiler: the campaign is as small as it gets.
    options = PlanOptions(select(RULES), quick=True, backend="host", max_inputs=INPUTS)
    return campaigns.Campaign(problems, options, jobs=2)


def measure(root, engine=None, reporter=None, images=None):
    plan = campaign()
    session = Session.create(root, plan.manifest())
    try:
        campaigns.run(plan, session, reporter or Silent(), images, engine=engine)
        return session.digest()
    finally:
        session.close()


class After(Silent):
    """Does something when so many cells are measured."""

    def __init__(self, acts):
        self.count, self.acts = itertools.count(1), acts

    def cells_done(self, problem, count):
        self.acts.get(next(self.count), lambda: None)()


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """Compiled code: of this machine and of the nodes, which are this machine."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERNELASSAY_CACHE", str(folder))
        patch.delenv("RAY_ADDRESS", raising=False)
        from kernelassay.engines.node import image_cache

        yield image_cache()


@pytest.fixture(scope="module")
def digest(tmp_path_factory, images):
    """That of a local run."""
    return measure(tmp_path_factory.mktemp("local") / "s", images=images)


@pytest.fixture(scope="module")
def cluster(images):
    """Two nodes of one core."""
    head = {**NODE, "include_dashboard": False, "_system_config": HEALTH}
    made = cluster_utils.Cluster(initialize_head=True, head_node_args=head)
    made.add_node(**NODE)
    yield made
    made.shutdown()


@pytest.fixture(scope="module")
def engine(cluster):
    with RayEngine(cluster.address, backend="host") as connected:
        yield connected


def children(pid):
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found += [int(child) for child in task.read_text().split()]
    return found


def title(pid):
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def actors():
    """The process ids of the actors at work on the nodes that this process has started."""
    below = [os.getpid()]
    for pid in below:
        below += children(pid)
    return [pid for pid in below if title(pid).startswith(b"ray::Node")]


def kill_all(pids):
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def workers():
    """The processes that run kernels: those behind the fork servers of the actors."""
    servers = [server for actor in actors() for server in children(actor)]
    return [worker for server in servers for worker in children(server)]


def test_the_digest_is_that_of_a_local_run_and_both_nodes_work(digest, engine, tmp_path):
    busy = []

    class Looking(Silent):
        def cells_done(self, problem, count):
            busy.append(len(actors()))

    assert engine.places == 2
    root = tmp_path / "s"
    assert measure(root, engine, Looking()) == digest
    assert max(busy) == 2
    assert {path.name for path in root.iterdir()} == {
        "cells",
        "gate",
        "lock",
        "manifest.json",
        "plans",
        "timings",
    }
    session = Session.open(root)
    assert all(session.read_gate(name).num_rows for name in NAMES)  # it travelled with the plans


def test_workers_actors_and_a_node_that_die_under_way_change_nothing(
    digest, cluster, engine, tmp_path
):
    """Nothing is measured twice but what was in flight."""
    (second,) = cluster.worker_nodes
    root = tmp_path / "s"
    killed, finished = [], {}

    def kill(victims):
        killed.append(victims())
        kill_all(killed[-1])

    def remove():
        finished.update({p: p.stat().st_mtime_ns for p in root.glob("cells/*/*.parquet")})
        cluster.remove_node(second, allow_graceful=False)

    acts = {3: lambda: kill(workers), 12: lambda: kill(actors), 24: remove}
    try:
        assert measure(root, engine, After(acts)) == digest
    finally:
        cluster.add_node(**NODE)
    assert len(killed) == 2
    assert all(killed)
    assert not second.any_processes_alive()
    assert finished
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in finished.items())


SCRIPT = """
import signal, sys
sys.path.insert(0, {root!r})
from pathlib import Path
from kernelassay.engines.ray import RayEngine
from tests.engines import test_ray
if __name__ == "__main__":
    # Ignored by what a shell starts with `&`, this test perhaps.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with RayEngine(sys.argv[1], backend="host") as engine:
        test_ray.measure(Path(sys.argv[2]), engine)
"""


def test_an_interrupted_coordinator_leaves_no_process_and_is_resumed_on_this_machine(
    digest, cluster, images, tmp_path
):
    script, root = tmp_path / "run.py", tmp_path / "s"
    script.write_text(SCRIPT.format(root=str(Path(__file__).parents[2])))
    command = [sys.executable, str(script), cluster.address, str(root)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + SECONDS
    while not list(root.glob("cells/*/*.parquet")) and time.monotonic() < deadline:
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    assert process.wait(SECONDS) != 0
    while actors() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not actors()
    assert measure(root, images=images) == digest


def test_an_interrupted_local_run_is_resumed_on_the_cluster(digest, engine, images, tmp_path):
    def fail():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure(tmp_path / "s", None, After({30: fail}), images)
    assert list(tmp_path.glob("s/cells/*/*.parquet"))
    assert measure(tmp_path / "s", engine) == digest


def test_a_node_with_other_versions_is_refused_by_name(engine, monkeypatch):
    other = replace(engine.own, facts={**engine.own.facts, "torch": "2.0.0", "compiler": "g++ 1"})
    monkeypatch.setattr(engine, "own", other)
    with pytest.raises(
        EngineError, match=r"compiler is .*, here g\+\+ 1; torch is .*, here 2\.0\.0"
    ):
        engine._survey()


def test_a_campaign_without_room_ends_with_what_it_wants(engine, monkeypatch, tmp_path):
    monkeypatch.setattr(engine, "needs", {"CPU": 1.0, "GPU": 1.0})
    monkeypatch.setattr(engines, "PATIENCE_SECONDS", 2.0)
    with pytest.raises(EngineError, match="wanted: 1 CPU, 1 GPU"):
        measure(tmp_path / "s", engine)
    with pytest.raises(EngineError, match="no node offers 1 CPU, 1 GPU"):
        engine._survey()


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ToolchainError, match=r"pip install 'kernelassay\[ray\]'"):
        RayEngine(backend="host")


def test_rays_client_protocol_is_refused():
    with pytest.raises(UsageError, match="client protocol"):
        RayEngine("ray://host:10001", backend="host")


def test_a_machine_is_like_itself_and_unlike_one_without_nvrtc():
    here = likenesses.likeness("host")
    assert not likenesses.differences(here, here)
    with_nvrtc = replace(here, facts={**here.facts, "nvrtc": "13.0"})
    assert likenesses.differences(with_nvrtc, here) == ["nvrtc is None, here 13.0"]
