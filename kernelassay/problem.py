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
import operator
import re
import sys
import traceback
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelassay.errors import KernelassayError, ProblemError, unknown_name
from kernelassay.literals import Literal, find_literals

if TYPE_CHECKING:
    import torch

REQUIRED_NAMES = ("Model", "get_inputs", "get_init_inputs")

# The seed KernelBench builds its models with.
MODEL_SEED = 42

# Words in the names of integers that are no extents, or whose change alters what is computed.
_NO_SIZE_TEXT = """
    add alpha avgpool axes axis beta beta1 beta2 blocks clamp constant dilation dilations divide
    divisor dropout eps epsilon expansion exponent factor gamma group groups heads iterations
    kernel kernels layers margin max maxpool min momentum multiplier multiply pad padding pool
    ratio reduction repeats scale scaling seed slope smoothing stages steps stride strides
    subtract temperature threshold value values window
"""
_NO_SIZE = frozenset(_NO_SIZE_TEXT.split())
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
        base = self.name.split("[")[0]
        return frozenset(word for word in re.split(r"[_\d]+", base.lower()) if word)

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
        if self.words & _NO_SIZE:
            return False
        if self.words & _AXIS_WORDS and self.value <= _LARGEST_AXIS:
            return False
        return self.value >= 2 or (self.value == 1 and self.is_batch)


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem file, parsed but not executed.

    ``shrunk`` holds the overrides that scale it down from the sizes in the file: of levers by
    name, of literals inside its code by place (``@line:column``). The source text stays as it was.
    """

    id: str
    level: int
    origin: str
    path: str
    source: str
    levers: tuple[Lever, ...]
    shrunk: tuple[tuple[str, int], ...] = ()

    @property
    def official_shape(self) -> bool:
        """Whether the sizes are the file's own."""
        return not self.shrunk

    @property
    def digest(self) -> str:
        """SHA-256 over the source and the scaling, in hex."""
        text = repr((self.source, tuple(sorted(self.shrunk))))
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
    levers = tuple(Lever(slot.name, slot.value) for slot in _slots(tree, source))
    return Problem(id or f"file/{path.stem}", level, origin, str(path), source, levers)


def literals(problem: Problem) -> tuple[Literal, ...]:
    """The integers inside the problem's classes and functions that scaling may edit."""
    return find_literals(_parse(problem.source, problem.path), problem.source, _NO_SIZE)


def apply_overrides(problem: Problem, overrides: Mapping[str, int]) -> str:
    """The problem's source with some levers and literals set; line numbers stay as they are."""
    tree = _parse(problem.source, problem.path)
    slots = _slots(tree, problem.source)
    if any(name.startswith("@") for name in overrides):
        found = find_literals(tree, problem.source, _NO_SIZE)
        slots += [_Slot(part.name, part.value, part.start, part.end) for part in found]
    known = [slot.name for slot in slots]
    for name in overrides:
        if name not in known:
            raise unknown_name(f"size of {problem.id}", name, known)
    spans: dict[tuple[int, int], list[_Slot]] = {}
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
                hint="return a list with at least one tensor",
            )
        return list(inputs)

    def forward(self, model: torch.nn.Module, inputs: Sequence[Any]) -> torch.Tensor:
        """``model(*inputs)`` without gradients; the one tensor it returns."""
        import torch

        with torch.no_grad(), _blamed(self.problem, "the model fails on its inputs"):
            output = model(*inputs)
        if not isinstance(output, torch.Tensor):
            raise ProblemError(
                f"the model returns a {type(output).__name__}, no tensor",
                where=self.problem.path,
                hint="a Model returns one tensor",
            )
        return output

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
        raise ProblemError(f"{what}: {type(error).__name__}{first}", where=where) from error


# ---- levers in the syntax tree ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Slot:
    """Where a lever is written: bytes ``[start, end)`` of the source.

    For ``a = b = 8`` the span is the whole statement and ``chain`` holds all its names.
    """

    name: str
    value: int
    start: int
    end: int
    chain: tuple[str, ...] = ()


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


def _slots(tree: ast.Module, source: str) -> list[_Slot]:
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def span(node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return (
            starts[node.lineno - 1] + node.col_offset,
            starts[node.end_lineno - 1] + node.end_col_offset,
        )

    last: dict[str, list[_Slot]] = {}
    for node in tree.body:
        if isinstance(node, (ast.AugAssign, ast.AnnAssign)):
            targets: list[ast.expr] = [node.target]
        elif isinstance(node, ast.Assign):
            targets = node.targets
        else:
            continue
        # Only a name's last assignment sets what the functions will see.
        names = [part.id for t in targets for part in ast.walk(t) if isinstance(part, ast.Name)]
        last.update((name, []) for name in names)
        if isinstance(node, ast.AugAssign) or node.value is None:
            continue
        if len(targets) > 1:
            value = _fold(node.value)
            if value is not None and len(names) == len(targets):
                for name in names:
                    last[name] = [_Slot(name, value, *span(node), tuple(names))]
            continue
        for name, part in _parts(targets[0], node.value):
            value = _fold(part)
            if value is not None:
                last[name.split("[", maxsplit=1)[0]].append(_Slot(name, value, *span(part)))
    return sorted((slot for slots in last.values() for slot in slots), key=lambda s: s.start)


def _parts(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(target, ast.Name):
        if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult):
            # [64] * 16: the element is the lever, whatever the number of copies.
            value = value.left if isinstance(value.left, (ast.Tuple, ast.List)) else value
        if isinstance(value, (ast.Tuple, ast.List)):
            for index, element in enumerate(value.elts):
                yield f"{target.id}[{index}]", element
        else:
            yield target.id, value
    elif (
        isinstance(target, ast.Tuple)
        and isinstance(value, ast.Tuple)
        and len(target.elts) == len(value.elts)
    ):
        for name, element in zip(target.elts, value.elts, strict=True):
            if isinstance(name, ast.Name):
                yield name.id, element


_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
}


def _fold(node: ast.expr) -> int | None:
    """The value of an integer expression without names, else None."""
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) is int else None
    if isinstance(node, ast.BinOp):
        left, right = _fold(node.left), _fold(node.right)
        if left is None or right is None:
            return None
        if isinstance(node.op, ast.Pow):
            return left**right if 0 <= right <= 64 and abs(left) <= 64 else None
        if isinstance(node.op, ast.FloorDiv):
            return left // right if right else None
        function = _OPERATORS.get(type(node.op))
        return function(left, right) if function else None
    return None
