"""A worker that is stopped while another thread waits for it."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from kernelassay.execute.worker import Worker, WorkerDiedError, context


def stuck(pipe):
    pipe.send("begun")
    threading.Event().wait()


def test_it_ends_at_once_and_its_pipe_is_closed_by_the_thread_that_reads_from_it():
    worker = Worker(None)
    worker._pipe, theirs = context().Pipe()
    worker._process = context().Process(target=stuck, args=(theirs,), daemon=True)
    worker._process.start()
    theirs.close()
    assert worker._receive(60) == "begun"
    closed_by = []
    pipe = worker._pipe
    worker._pipe = SimpleNamespace(
        poll=pipe.poll,
        recv=pipe.recv,
        close=lambda: closed_by.append(threading.current_thread()) or pipe.close(),
    )
    stopper = threading.Thread(target=worker.stop)
    stopper.start()
    with pytest.raises(WorkerDiedError, match="SIGKILL"):
        worker._receive(60)
    stopper.join()
    assert closed_by == [threading.current_thread()]
