"""Problems: a PyTorch reference with its inputs, in the file format KernelBench uses.

A problem file defines a class ``Model`` (an ``nn.Module``), ``get_inputs()`` and
``get_init_inputs()``. :func:`read_problem` only parses it. :func:`load` *executes* it: call that
inside a worker process only (see :mod:`kernelassay.execute.sandbox`).

Module-level integers are *levers*: the sizes that shrinking and shape inputs move. A lever is set
by replacing its literal in the source, so every expression that uses it follows.
"""

from __future__ import annotations

import ast
import hashlib
import linecache
import re
import sys
import traceback
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelassay.errors import (
    KernelassayError,
    ProblemError,
    UnsupportedError,
    unknown_name,
)
from kernelassay.literals import Literal, find_literals
from kernelassay.slots import NO_SIZE, Slot, module_slots, words

if TYPE_CHECKING:
    import torch

    from kernelassay.user.kernel_file import KernelFile

REQUIRED_NAMES = ("Model", "get_inputs", "get_init_inputs")

# The seed KernelBench builds its models with.
MODEL_SEED = 42

_AXIS_WORDS = frozenset({"dim", "dims", "axis", "reduce"})
_BATCH_WORDS = frozenset({"batch", "b", "bs"})
_SPATIAL_WORDS = frozenset({"height", "width", "depth", "length", "h", "w", "d", "l"})
_LARGEST_AXIS = 4


@dataclass(frozen=True, slots=True)
class Lever:
    """A module-level integer of a problem file.

    Products are folded (``2048 * 2``); the integers of a tuple or list ``t`` are the levers
    ``t[0]``, ``t[1]``, ...
    """

    name: str
    value: int

    @property
    def words(self) -> frozenset[str]:
        """The parts of the name, in lower case, without digits and subscripts."""
        return words(self.name)

    @property
    def is_batch(self) -> bool:
        """Whether the name says that this is a number of independent samples."""
        return bool(self.words & _BATCH_WORDS)

    @property
    def is_spatial(self) -> bool:
        """Whether the name says that this is an extent that windows slide over."""
        return bool(self.words & _SPATIAL_WORDS)

    @property
    def is_size(self) -> bool:
        """Whether the lever may be scaled: an extent, by its name, and no kernel size or axis."""
        if self.words & NO_SIZE:
            return False
        if self.words & _AXIS_WORDS and self.value <= _LARGEST_AXIS:
            return False
        return self.value >= 2 or (self.value == 1 and self.is_batch)


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem file, parsed but not executed.

    ``shrunk`` holds the overrides that scale it down from the sizes in the file, of levers by name,
    of literals inside its code by place (``@line:column``); the source text stays as it was.
    ``kernel`` is a user's kernel that stands in for the whole forward; without one the op library
    supplies the substrate.
    """

    id: str
    level: int
    origin: str
    path: str
    source: str
    levers: tuple[Lever, ...]
    shrunk: tuple[tuple[str, int], ...] = ()
    kernel: KernelFile | None = None

    @property
    def official_shape(self) -> bool:
        """Whether the sizes are the file's own."""
        return not self.shrunk

    @property
    def digest(self) -> str:
        """SHA-256 over the source, the scaling, and the kernel if there is one, in hex."""
        parts: tuple[Any, ...] = (self.source, tuple(sorted(self.shrunk)))
        text = repr(parts if self.kernel is None else (*parts, self.kernel.digest))
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def sizes(self) -> tuple[Lever, ...]:
        """The levers that may be scaled, at their present values, in file order."""
        now = dict(self.shrunk)
        present = (Lever(lever.name, now.get(lever.name, lever.value)) for lever in self.levers)
        return tuple(
            lever for original, lever in zip(self.levers, present, strict=True) if original.is_size
        )


def read_problem(
    path: Path | str, *, id: str | None = None, level: int = 0, origin: str = "file"
) -> Problem:
    """Parse a problem file without executing it.

    Raises ``ProblemError`` when the file cannot be read, does not parse, or does not define
    ``Model``, ``get_inputs`` and ``get_init_inputs`` at module level.
    """
    path = Path(path)
    try:
        source = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ProblemError(
            f"cannot be read: {error}", where=str(path), hint="name a readable UTF-8 Python file"
        ) from error
    tree = _parse(source, str(path))
    missing = [name for name in REQUIRED_NAMES if name not in _bound_names(tree.body)]
    if missing:
        raise ProblemError(
            f"does not define {', '.join(missing)}",
            where=str(path),
            hint="a problem file defines class Model, get_inputs() and get_init_inputs()",
        )
    levers = tuple(Lever(slot.name, slot.value) for slot in module_slots(tree, source))
    return Problem(id or f"file/{path.stem}", level, origin, str(path), source, levers)


def literals(problem: Problem) -> tuple[Literal, ...]:
    """The integers inside the problem's classes and functions that scaling may edit."""
    return find_literals(_parse(problem.source, problem.path), problem.source, NO_SIZE)


def apply_overrides(problem: Problem, overrides: Mapping[str, int]) -> str:
    """The problem's source with some levers or literals set; line numbers stay as they are."""
    tree = _parse(problem.source, problem.path)
    slots = module_slots(tree, problem.source)
    if any(name.startswith("@") for name in overrides):
        found = find_literals(tree, problem.source, NO_SIZE)
        slots += [Slot(part.name, part.value, part.start, part.end) for part in found]
    known = [slot.name for slot in slots]
    for name in overrides:
        if name not in known:
            raise unknown_name(f"size of {problem.id}", name, known)
    spans: dict[tuple[int, int], list[Slot]] = {}
    for slot in slots:
        spans.setdefault((slot.start, slot.end), []).append(slot)
    text = problem.source.encode()
    for (start, end), group in sorted(spans.items(), reverse=True):
        if not any(slot.name in overrides for slot in group):
            continue
        values = {slot.name: overrides.get(slot.name, slot.value) for slot in group}
        first = group[0]
        if first.chain:
            new = "; ".join(f"{name} = {values.get(name, first.value)}" for name in first.chain)
        else:
            new = str(values[first.name])
        text = text[:start] + new.encode() + text[end:]
    return text.decode()


@dataclass(frozen=True, slots=True)
class LoadedProblem:
    """An executed problem file. Exists in worker processes only."""

    problem: Problem
    overrides: tuple[tuple[str, int], ...]
    model_class: Callable[..., Any]
    get_inputs: Callable[[], Any]
    get_init_inputs: Callable[[], Any]

    def build_model(self, seed: int = MODEL_SEED) -> torch.nn.Module:
        """A fresh model in train mode, seeded as KernelBench seeds it.

        The seed is set before ``get_init_inputs()`` and again before the constructor.
        """
        import torch

        with torch.no_grad():
            torch.manual_seed(seed)
            with _blamed(self.problem, "get_init_inputs() fails"):
                arguments = self.get_init_inputs()
            self._require_sequence("get_init_inputs", arguments)
            torch.manual_seed(seed)
            with _blamed(self.problem, "Model cannot be built"):
                model = self.model_class(*arguments)
        if not isinstance(model, torch.nn.Module):
            raise ProblemError(
                f"Model is a {type(model).__name__}, no torch.nn.Module", where=self.problem.path
            )
        return model

    def draw(self, seed: int) -> list[Any]:
        """The inputs ``get_inputs()`` returns after ``torch.manual_seed(seed)``."""
        import torch

        torch.manual_seed(seed)
        with _blamed(self.problem, "get_inputs() fails"):
            inputs = self.get_inputs()
        self._require_sequence("get_inputs", inputs)
        if not any(isinstance(value, torch.Tensor) for value in inputs):
            raise ProblemError(
                "get_inputs() returns no tensor",
                where=self.problem.path,
                hint="return a flat list with at least one tensor",
            )
        for index, value in enumerate(inputs):
            if isinstance(value, torch.Tensor) and value.numel() == 0:
                raise UnsupportedError(
                    f"input {index} is empty (shape {tuple(value.shape)})",
                    where=self.problem.path,
                    hint="give the problem sizes that yield at least one element",
                )
        return list(inputs)

    def forward(self, model: torch.nn.Module, inputs: Sequence[Any]) -> tuple[torch.Tensor, ...]:
        """``model(*inputs)`` without gradients, as a flat tuple of tensors.

        Raises ``UnsupportedError`` for an output no kernel can be compared with.
        """
        import torch

        from kernelassay.references import flat_outputs

        with torch.no_grad(), _blamed(self.problem, "the model fails on its inputs"):
            output = model(*inputs)
        try:
            return flat_outputs(output)
        except UnsupportedError as error:
            raise UnsupportedError(error.what, where=self.problem.path, hint=error.hint) from None

    def _require_sequence(self, function: str, value: object) -> None:
        if not isinstance(value, (list, tuple)):
            raise ProblemError(
                f"{function}() returns a {type(value).__name__}",
                where=self.problem.path,
                hint="return a list",
            )


def load(problem: Problem, overrides: Mapping[str, int] | None = None) -> LoadedProblem:
    """EXECUTE a problem file, with its scaling and then ``overrides`` applied to its levers.

    Call this inside a worker process only. Raises ``ProblemError`` with the exception and the
    line when the file does not import, ``UsageError`` for a lever it does not have.
    """
    merged = {**dict(problem.shrunk), **(overrides or {})}
    source = apply_overrides(problem, merged)
    name = f"kernelassay_problem_{problem.digest[:16]}"
    module = types.ModuleType(name)
    module.__file__ = problem.path
    sys.modules[name] = module
    lines = source.splitlines(keepends=True)
    linecache.cache[problem.path] = (len(source), None, lines, problem.path)
    with _blamed(problem, "does not import"):
        # dont_inherit: this module's __future__ imports are not the problem's.
        exec(compile(source, problem.path, "exec", dont_inherit=True), module.__dict__)
    missing = [name for name in REQUIRED_NAMES if not callable(module.__dict__.get(name))]
    if missing:
        raise ProblemError(f"{', '.join(missing)} cannot be called", where=problem.path)
    return LoadedProblem(
        problem,
        tuple(sorted((overrides or {}).items())),
        *(module.__dict__[name] for name in REQUIRED_NAMES),
    )


def device_hint(message: str) -> str:
    """What to do about an exception that says a GPU is missing; "" for any other."""
    if re.search(r"\bcuda\b|\bgpu\b|nvidia", message, re.IGNORECASE) is None:
        return ""
    return "problems run on the CPU: drop .cuda() and device='cuda'"


@contextmanager
def _blamed(problem: Problem, what: str) -> Iterator[None]:
    """Turn an exception of problem code into a ProblemError that names its line."""
    try:
        yield
    except (MemoryError, KernelassayError):
        raise
    except (Exception, SystemExit) as error:
        if "can't allocate memory" in str(error):
            raise MemoryError(str(error)) from error
        lines = [
            frame.lineno
            for frame in traceback.extract_tb(error.__traceback__)
            if frame.filename == problem.path and frame.lineno
        ]
        if isinstance(error, SyntaxError) and error.lineno:
            lines.append(error.lineno)
        where = f"{problem.path}:{lines[-1]}" if lines else problem.path
        message = str(error).strip().splitlines()
        first = f": {message[0][:300]}" if message else ""
        raise ProblemError(
            f"{what}: {type(error).__name__}{first}", where=where, hint=device_hint(str(error))
        ) from error


def _parse(source: str, path: str) -> ast.Module:
    try:
        return ast.parse(source, filename=path)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        raise ProblemError(
            f"does not parse: {getattr(error, 'msg', error)}",
            where=f"{path}:{line}" if line else path,
            hint="a problem file is Python source",
        ) from error


def _bound_names(body: Sequence[ast.stmt]) -> set[str]:
    """The names a module body binds, also in ``if`` and ``try`` statements."""
    names: set[str] = set()
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.ImportFrom):
            names.update(alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Assign):
            names.update(target.id for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, (ast.If, ast.Try)):
            names |= _bound_names(node.body) | _bound_names(node.orelse)
    return names
