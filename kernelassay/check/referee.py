"""The problem's side of a check, in a worker process: it draws inputs and runs references.

It EXECUTES the problem file, which a candidate's process never sees, and holds no candidate.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from kernelassay.check.processes import context, run_referee
from kernelassay.check.values import Build, Expected, Prepared
from kernelassay.errors import KernelassayError, ProblemError, UnsupportedError
from kernelassay.execute import wire
from kernelassay.inputs import InputSpec
from kernelassay.problem import MODEL_SEED, LoadedProblem, Problem

if TYPE_CHECKING:
    import torch

SECONDS = 300.0
_SEEDED = "seeded:"


class Referee:
    """The judge's handle on the process that knows the problem."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._pipe, theirs = context().Pipe()
        self._process = context().Process(target=run_referee, args=(theirs, problem), daemon=True)
        self._process.start()
        theirs.close()

    def battery(self, size: str) -> tuple[InputSpec, ...]:
        """The inputs of a battery that run and stay small. Raises :class:`ProblemError`."""
        found: tuple[InputSpec, ...] = self._ask("battery", size)
        return found

    def prepare(self, spec: InputSpec) -> Prepared:
        """Draw an input and run the references. Raises :class:`KernelassayError`."""
        prepared: Prepared = self._ask("prepare", spec)
        return prepared

    def close(self) -> None:
        """End the process."""
        self._pipe.close()
        if self._process.pid is not None:
            with contextlib.suppress(OSError):
                os.kill(self._process.pid, signal.SIGKILL)
        self._process.join(10)

    def _ask(self, what: str, argument: Any) -> Any:
        try:
            self._pipe.send((what, argument))
            if not self._pipe.poll(SECONDS):
                raise ProblemError(
                    f"gave no answer within {SECONDS:g} s",
                    where=self.problem.id,
                    hint="look for an endless loop, or use smaller sizes",
                )
            reply = self._pipe.recv()
        except (EOFError, OSError):
            raise ProblemError(
                "the process that ran the problem ended",
                where=self.problem.id,
                hint="does the file exit, or allocate too much?",
            ) from None
        if isinstance(reply, KernelassayError):
            raise reply
        return reply


# ---- the process -------------------------------------------------------------------------------


def serve(pipe: Connection, problem: Problem) -> None:
    """The main loop of the process."""
    from kernelassay.execute.serving import restrict

    restrict()
    bench = _Bench(problem)
    while True:
        try:
            what, argument = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            pipe.send(bench.battery(argument) if what == "battery" else bench.prepare(argument))
        except KernelassayError as error:
            pipe.send(error)
        except Exception as error:  # problem code raises whatever it likes
            where = f"{problem.id} {argument.id}" if what == "prepare" else problem.id
            pipe.send(ProblemError(f"{type(error).__name__}: {error}"[:2000], where=where))


class _Bench:
    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._loaded: dict[Any, LoadedProblem] = {}
        self._draws: bool | None = None

    def battery(self, size: str) -> tuple[InputSpec, ...]:
        from kernelassay.input_trials import settle

        # A candidate is no graph of literals: sizes that change the graph may move.
        return settle(self._problem, size, signature=lambda overrides: "").specs

    def prepare(self, spec: InputSpec) -> Prepared:
        import torch

        from kernelassay import inputs as test_inputs
        from kernelassay.problem import load
        from kernelassay.references import run_model

        if spec.overrides not in self._loaded:
            self._loaded[spec.overrides] = load(self._problem, dict(spec.overrides))
        loaded = self._loaded[spec.overrides]
        values, state = test_inputs.materialise(loaded, spec)
        held = tuple(_held(value) for value in values)
        own, does = self._own(loaded, state, values, spec)
        with torch.no_grad():
            single = run_model(loaded, state, _copies(values), torch.float32, spec.seed)
            with torch.backends.mkldnn.flags(enabled=False):
                other = run_model(loaded, state, _copies(values), torch.float32, spec.seed)
            exact = run_model(loaded, state, _copies(values), torch.float64, spec.seed)
            if self._draws is None:
                again = run_model(loaded, state, _copies(values), torch.float32, spec.seed + 1)
                self._draws = any(
                    not torch.equal(a.nan_to_num(), b.nan_to_num())
                    for a, b in zip(single, again, strict=True)
                )
        return Prepared(
            spec=spec,
            digest=test_inputs.digest(values),
            inputs=held,
            build=_build(loaded, spec, state),
            state={name: _hold(value) for name, value in state.items()},
            expected=tuple(_expected(value) for value in own),
            singles=tuple(tuple(v.numpy() for v in found) for found in (single, other)),
            exact=tuple(value.numpy() for value in exact),
            draws=self._draws,
            does=does,
        )

    def _own(
        self,
        loaded: LoadedProblem,
        state: dict[str, torch.Tensor],
        values: Sequence[Any],
        spec: InputSpec,
    ) -> tuple[tuple[torch.Tensor, ...], tuple[str, ...]]:
        """The outputs in the problem's own dtype, and what the forward does to its inputs."""
        import torch

        from kernelassay.check.candidate import overlap
        from kernelassay.draws import drawing
        from kernelassay.inputs import digest

        model = loaded.build_model(MODEL_SEED)
        model.load_state_dict(state)
        copies = _copies(values)
        before = digest(copies)
        torch.manual_seed(spec.seed)
        with drawing(spec.seed):
            outputs = loaded.forward(model, copies)
        does = []
        if digest(copies) != before:
            does.append("changes-input")
        tensors = [value for value in copies if isinstance(value, torch.Tensor)]
        if any(overlap(output, value) for output in outputs for value in tensors):
            does.append("shares-input")
        own = [*model.parameters(), *model.buffers()]
        if any(overlap(output, value.detach()) for output in outputs for value in own):
            does.append("shares-parameter")
        return outputs, tuple(does)


def _build(loaded: LoadedProblem, spec: InputSpec, state: dict[str, torch.Tensor]) -> Build:
    import torch

    seeded = spec.parameters.startswith(_SEEDED)
    seed = int(spec.parameters.removeprefix(_SEEDED)) if seeded else MODEL_SEED
    torch.manual_seed(seed)
    init = tuple(_held(value) for value in loaded.get_init_inputs())
    kept = None
    if not seeded and spec.parameters != "official":
        kept = {name: _hold(value) for name, value in state.items()}
    sizes = ",".join(f"{name}={value}" for name, value in spec.overrides)
    return Build(f"{sizes}/{spec.parameters}", seed, init, kept)


def _copies(values: Sequence[Any]) -> list[Any]:
    """The values in memory of their own, in their own strides."""
    import torch

    return [_copy(value) if isinstance(value, torch.Tensor) else value for value in values]


def _copy(value: torch.Tensor) -> torch.Tensor:
    import torch

    flat = value.detach().as_strided((_length(value),), (1,)).clone()
    return torch.as_strided(flat, value.shape, value.stride())


def _length(value: torch.Tensor) -> int:
    spans = zip(value.shape, value.stride(), strict=True)
    return 1 + sum((extent - 1) * stride for extent, stride in spans)


def _held(value: Any) -> Any:
    """A value of the problem with its tensors as :class:`wire.Held`."""
    import torch

    if isinstance(value, torch.Tensor):
        return _hold(value)
    if isinstance(value, list | tuple):
        return type(value)([_held(item) for item in value])
    wire.encode(value, [])
    return value


def _hold(value: torch.Tensor) -> wire.Held:
    import torch

    if value.layout != torch.strided or value.is_meta:
        raise UnsupportedError(f"a tensor of the layout {value.layout} cannot be handed over")
    value = value.detach().cpu()
    name = str(value.dtype).removeprefix("torch.")
    if value.numel() == 0:
        return wire.Held(name, tuple(value.shape), tuple(value.stride()), b"")
    flat = value.as_strided((_length(value),), (1,)).contiguous()
    data = flat.view(torch.uint8).numpy().tobytes()
    return wire.Held(name, tuple(value.shape), tuple(value.stride()), data)


def _expected(value: torch.Tensor) -> Expected:
    name = str(value.dtype).removeprefix("torch.")
    return Expected(name, tuple(value.shape), value.numel() * value.element_size())
