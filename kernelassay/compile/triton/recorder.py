"""Run a Triton module's host code on tensors without values, and write down what it does.

What host code does to tensors passes PyTorch's dispatcher, so everything it can do to the result is
seen: operators with their arguments, launches, and what it returns. Tensors are told apart by
storage, numbered as they appear. A launch takes Triton's own way up to the driver, which is a stub:
binding of arguments, checks of options and the evaluation of the grid are Triton's. Triton
specialises code to integers and pointers that are divisible by 16, and to integers equal to 1, so
each launch has two codes: the one that it runs, and the general one for any arguments.

Foreign code runs here, so this is for a process with limits: see
:mod:`kernelassay.compile.triton.worker`.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
import linecache
import operator
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernelassay.compile.triton.calls import Call
from kernelassay.errors import UnsupportedError

CAPABILITY = 90
_FILE = "<triton module>"
_PLAIN = (bool, int, float, complex, str, bytes)


@dataclass(frozen=True, slots=True)
class Combo:
    """What Triton would compile: a function, the types of its arguments, constants and options.

    ``attributes`` are what is known of arguments beside their types.
    """

    function: Any
    signature: dict[str, Any]
    constants: dict[tuple[int, ...], Any]
    options: Any
    attributes: dict[tuple[int, ...], Any]


@dataclass(slots=True)
class Recorded:
    """What one call did: a digest of all but the code launched, the code by number, what it raised.

    ``launches`` has a combo number for each launch, in order, ``general`` that of its code for any
    arguments; ``raised`` is "" if nothing was.
    """

    digest: str
    launches: list[int]
    general: list[int]
    raised: str


@dataclass(slots=True)
class Recording:
    """All calls of a module, and the combos that they launch."""

    calls: list[Recorded] = field(default_factory=list)
    combos: list[Combo] = field(default_factory=list)


class LoadError(Exception):
    """A module text that does not load, or has no function ``run``: nothing of it can run."""


def load(text: str) -> Callable[..., Any]:
    """The function ``run`` of a module text. Raises :class:`LoadError`."""
    module = types.ModuleType("kernelassay_triton_module")
    # Triton reads the source of its functions through inspect.
    linecache.cache[_FILE] = (len(text), None, text.splitlines(True), _FILE)
    try:
        exec(compile(text, _FILE, "exec"), module.__dict__)
    except (Exception, SystemExit) as error:
        raise LoadError(f"error: the module does not load: {_line(error)}") from error
    run = getattr(module, "run", None)
    if not callable(run):
        raise LoadError("error: the module has no function run")
    return run


def record(text: str, calls: Sequence[Call]) -> Recording:
    """Call a module's ``run`` on tensors without values. Raises :class:`LoadError`.

    An exception of the host code ends its call and is part of the record.
    """
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from triton.runtime.jit import JITFunction

    recording = Recording()
    session = _Session(recording)
    _install(JITFunction, session)
    with FakeTensorMode():
        run = load(text)
        for call in calls:
            inputs = []
            for spec in call:
                dtype = getattr(torch, spec.dtype)
                strides = spec.strides
                inputs.append(
                    torch.empty(spec.shape, dtype=dtype)
                    if strides is None
                    else torch.empty_strided(spec.shape, strides, dtype=dtype)
                )
            recording.calls.append(session.call(run, inputs))
    return recording


def _line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__


class _Session:
    """What the calls so far did; ``events`` are those of the call under way."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.events: list[Any] = []
        self.launches: list[tuple[int, int]] = []
        self._numbers: dict[str, int] = {}
        self._storages: dict[int, int] = {}
        self._kept: list[Any] = []

    def call(self, run: Callable[..., Any], inputs: Sequence[Any]) -> Recorded:
        self.events, self.launches, raised = [], [], ""
        # Numbers go on from call to call: a module may keep tensors, and inputs come first in each.
        self.events.append(["inputs", self.describe(list(inputs))])
        try:
            with _log(self):
                returned = run(*inputs)
            self.events.append(["returns", self.describe(returned)])
        except (Exception, SystemExit) as error:
            raised = _line(error)
        digest = hashlib.blake2b(json.dumps(self.events).encode(), digest_size=16).hexdigest()
        launched, general = ([pair[i] for pair in self.launches] for i in (0, 1))
        return Recorded(digest, launched, general, raised)

    def number(self, combo: Combo) -> int:
        """The number of a combo, a new one if none is like it."""
        parts = (combo.signature, combo.constants, combo.options, combo.attributes)
        key = repr((id(combo.function), *parts))
        if key not in self._numbers:
            self._numbers[key] = len(self.recording.combos)
            self.recording.combos.append(combo)
        return self._numbers[key]

    def describe(self, value: Any) -> Any:
        """A JSON value that is equal for values that host code cannot tell apart.

        Raises :class:`UnsupportedError` for what has no such value.
        """
        import torch
        from torch._subclasses.fake_tensor import FakeTensor
        from torch.utils._python_dispatch import _disable_current_modes

        if value is None or isinstance(value, _PLAIN):
            return [type(value).__name__, repr(value)]
        if isinstance(value, FakeTensor):
            return ["tensor", *self._place(value), list(value.shape), list(value.stride())]
        if isinstance(value, torch.Tensor):  # a constant of the host code, with its values
            with _disable_current_modes():
                data = value.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
            return ["constant", str(value.dtype), list(value.shape), data.hex()]
        if isinstance(value, (list, tuple)):
            return [type(value).__name__, [self.describe(part) for part in value]]
        if isinstance(value, dict):
            return ["dict", [[self.describe(k), self.describe(v)] for k, v in value.items()]]
        if isinstance(value, (torch.dtype, torch.device, torch.layout, torch.memory_format)):
            return ["torch", str(value)]
        if dataclasses.is_dataclass(value) and not isinstance(value, type):  # a tensor descriptor
            return [type(value).__name__, self.describe(dict(vars(value)))]
        raise UnsupportedError(f"cannot record a {type(value).__name__} in host code")

    def _place(self, tensor: Any) -> list[Any]:
        storage = tensor.untyped_storage()
        if storage._cdata not in self._storages:
            self._storages[storage._cdata] = len(self._storages)
            self._kept.append(tensor)  # else the next storage might have its address
        number = self._storages[storage._cdata]
        return [number, storage.nbytes(), tensor.storage_offset(), str(tensor.dtype)]

    def argument(self, value: Any, kind: Any) -> Any:
        """An argument as a kernel sees it: a pointer has no shape, a constant is in the code."""
        from torch._subclasses.fake_tensor import FakeTensor

        if kind == "constexpr":
            return None
        if isinstance(kind, tuple):
            return [self.argument(v, k) for v, k in zip(value, kind, strict=True)]
        if isinstance(value, FakeTensor):
            return [kind, *self._place(value)]
        return [kind, self.describe(value)]


def _log(session: _Session) -> Any:
    """A mode that notes every operator in the session, but for views: uses tell those apart."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Log(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = kwargs or {}
            if func.namespace == "prim":  # asks for a tensor's device
                return func(*args, **kwargs)
            event = ["op", str(func), session.describe(args), session.describe(kwargs)]
            returned = func(*args, **kwargs)
            aliases = [entry.alias_info for entry in func._schema.returns]
            view = bool(aliases) and all(a is not None and not a.is_write for a in aliases)
            # Fresh from values is a view of these, which nothing else names.
            if not view or func.name().startswith("aten::lift"):
                session.events.append([*event, session.describe(returned)])
            return returned

    return Log()


class _Driver:
    """What Triton asks a driver for on the way to a launch."""

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", CAPABILITY, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int | None = None) -> int:
        return 0

    def get_benchmarker(self) -> Any:
        return _no_benchmark


def _no_benchmark(*arguments: Any, **options: Any) -> Any:
    raise UnsupportedError(
        "triton.autotune chooses among configurations by measuring them",
        hint="leave one configuration, the one that a device chose",
    )


class _Kernel:
    """Stands for a compiled kernel: its launch is noted, as one of two combos by number."""

    function: Any = None
    packed_metadata: Any = None

    def __init__(self, session: _Session, combo: int, general: int) -> None:
        self._session = session
        self._numbers = (combo, general)

    def launch_metadata(self, grid: Any, stream: Any, *arguments: Any) -> None:
        return None

    def run(self, x: Any, y: Any, z: Any, *rest: Any) -> None:
        session = self._session
        kinds = list(session.recording.combos[self._numbers[1]].signature.values())
        # As the launcher, which takes what is an integer and nothing that is merely a number.
        grid = [operator.index(size) for size in (x, y, z)]
        arguments = rest[-len(kinds) :] if kinds else ()
        described = [session.argument(v, k) for v, k in zip(arguments, kinds, strict=True)]
        # A constant leaves no mark but in the code; which other argument is at what place does.
        session.events.append(["launch", grid, [a for a in described if a is not None]])
        session.launches.append(self._numbers)


def _refuse_foreign_code(options: Any) -> None:
    """Raise :class:`UnsupportedError` for options that bring code from elsewhere."""
    libraries = set(dict(options.extern_libs or ())) - {"libdevice"}
    for name in sorted(libraries) or (["ir_override"] if options.ir_override else []):
        raise UnsupportedError(f"kernel option {name} brings code that is not the module's")


def _install(jit_function: Any, session: _Session) -> None:
    """Have launches noted; for good, so in a process of its own."""
    import triton
    from triton.runtime.autotuner import Autotuner

    triton.runtime.driver.set_active(_Driver())
    Autotuner._bench = _no_benchmark

    create_binder = jit_function.create_binder
    bound: dict[Any, _Bound] = {}

    def with_general(self: Any) -> tuple[Any, ...]:
        *rest, backend, specialised = create_binder(self)
        general = _general_binder(self, backend)

        def binder(*args: Any, **kwargs: Any) -> Any:
            made = specialised(*args, **kwargs)
            bound[self] = (made[0], [kind for kind, _ in general(*args, **kwargs)[1]])
            return made

        return (*rest, backend, binder)

    def compiled(
        self: Any,
        key: Any,
        signature: dict[str, Any],
        device: Any,
        constexprs: dict[tuple[int, ...], Any],
        options: Any,
        attrs: dict[tuple[int, ...], Any],
        warmup: bool,
    ) -> _Kernel:
        _refuse_foreign_code(options)
        combo = Combo(self, signature, constexprs, options, attrs)
        general = _general(self, *bound[self], options)
        kernel = _Kernel(session, *(session.number(each) for each in (combo, general)))
        self.device_caches[device][0][key] = kernel
        return kernel

    jit_function.create_binder = with_general
    jit_function._do_compile = compiled


_Bound = tuple[dict[str, Any], list[Any]]
"""Arguments by name, and their types."""


def _general_binder(function: Any, backend: Any) -> Callable[..., Any]:
    """Triton's binder for a function that nothing is specialised in."""
    from triton.runtime.jit import create_function_from_signature

    parameters = []
    for given in function.params:
        parameter = copy.copy(given)
        if not parameter.is_constexpr:
            parameter.do_not_specialize = parameter.do_not_specialize_on_alignment = True
        parameters.append(parameter)
    binder: Callable[..., Any] = create_function_from_signature(
        function.signature, parameters, backend
    )
    return binder


def _general(function: Any, arguments: dict[str, Any], kinds: list[Any], options: Any) -> Combo:
    """The combo of a launch without what Triton specialises it to."""
    from triton._utils import find_paths_if, get_iterable_path

    values = list(arguments.values())
    paths = find_paths_if(kinds, lambda _, kind: kind == "constexpr")
    constants = {path: get_iterable_path(values, path) for path in paths}
    signature = dict(zip((p.name for p in function.params), kinds, strict=True))
    return Combo(function, signature, constants, options, {})
