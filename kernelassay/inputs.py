"""Test inputs: what they are, the battery for a problem, and their bytes.

An input is named by a small value (:class:`InputSpec`) and made again from it, byte for byte, on
every machine with the same torch version. ``official`` inputs are the ones the benchmark draws;
the others are aimed at faults those cannot show. Whether a reference is defined on an input is
decided elsewhere (the validity gate).
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from kernelassay.errors import (
    UsageError,
    unknown_name,
)
from kernelassay.input_shapes import Overrides, Verdict, shape_overrides
from kernelassay.kernelbench import official_seeds
from kernelassay.problem import MODEL_SEED, LoadedProblem, Problem

if TYPE_CHECKING:
    import torch

GIVEN = "given:"
PROTOCOL = "protocol"
"""The group of inputs that a run draws since it was asked for a protocol."""
GENERATED = "generated"
"""The group of inputs that a generator made (:mod:`kernelassay.synthesis.generate`)."""
CHECKERS = ("official", "verified", PROTOCOL)
"""The groups of inputs that checkers draw."""
SMALL = "small/"
"""Begins the id of an input at small sizes of a problem that runs at its official ones."""
FULL_BATTERY = 39
MOST_SHAPES = 12
QUICK_BATTERY = 22
BRIEF_BATTERY = 10
FULL, QUICK, BRIEF = "full", "quick", "brief"

SMALL_WORK = 1_000_000

# Each entry is one input: the first of its transforms on which the float32 reference is precise
# enough. Magnitudes are thus as extreme as the problem allows, and no more.
TARGETED = (
    ("sign-mixed",),
    ("huge-3e5", "large-1e4", "large-1e2"),
    ("offset-1e3", "offset-30"),
    ("small-spread",),
    ("edge-spikes-100", "edge-spikes-10"),
    ("thresholds",),
    ("saturating",),
    ("ties",),
    ("ramp",),
    # The first nine make the quick battery.
    ("sign-mixed-300", "sign-mixed-30", "sign-mixed-5"),
    ("near-zero-1e-3",),
    ("zero-rows", "constant-rows"),
    ("all-negative",),
    ("opposed",),
    ("wide",),
    ("sorted-descending",),
    ("offset-30",),
    ("large-1e2",),
)
_TARGETED_SEED = 1

# Values for the shapes, in turn. A vectorised loop's scalar tail, or a loop's only turn at a tiny
# extent, shows a fault of precision or range on extreme values alone. Each entry ends in drawn
# values: some references are defined on their own domain only.
_SHAPE_VALUES = (
    ("huge-3e5", "large-1e4", "large-1e2", "official"),
    ("sign-mixed", "official"),
    ("offset-1e3", "offset-30", "official"),
    ("edge-spikes-100", "edge-spikes-10", "official"),
    ("huge-3e5", "large-1e4", "large-1e2", "official"),
    ("sign-mixed", "official"),
    ("offset-1e3", "offset-30", "official"),
    ("near-zero-1e-3", "official"),
    ("sign-mixed", "official"),
    ("wide", "official"),
    ("saturating", "official"),
    ("official",),
)

# Number, ways to redraw the parameters, values. The first two are in the quick battery. Factors
# show loads in half precision where terms cancel, and past the range of fp16.
_PARAMETER_INPUTS: tuple[tuple[int, tuple[str, ...], tuple[str, ...]], ...] = (
    (1, ("redrawn:1001",), ("sign-mixed", "official")),
    (
        2,
        ("redrawn:1002:x3000", "redrawn:1002:x300", "redrawn:1002:x30"),
        ("sign-mixed", "official"),
    ),
    (3, ("redrawn:1003:x100000", "redrawn:1003"), ("official",)),
)


@dataclass(frozen=True, slots=True)
class _Size:
    """A battery's inputs in all, and how many of a group; shapes fill what is left."""

    total: int
    targeted: int
    parameters: int
    layout: int = 1


_SIZES = {
    FULL: _Size(FULL_BATTERY, len(TARGETED), len(_PARAMETER_INPUTS)),
    QUICK: _Size(QUICK_BATTERY, 9, 2),
    BRIEF: _Size(BRIEF_BATTERY, 2, 1, 0),  # enough to see a kernel that is not correct
}
BATTERIES = tuple(_SIZES)

# Orders of threads and surroundings for the shapes, in turn. A race shows in the output in one
# order or another, a write past the end of a buffer when it comes before what it lands on is read.
_CONDITIONS = (
    ("reverse", "packed"),
    ("forward", "nan"),
    ("reverse", "packed"),
    ("seeded:1", "nan"),
)

# A candidate's references must agree within this share of the validity tolerance. Correct kernels
# stray up to ten times as far as the float32 reference does (Welford moments of offset values), and
# half the tolerance is their limit.
CHOICE_LIMIT = 0.05


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One test input of a problem.

    ``transform`` is as in ``input_values.named_transform``, or ``given:<path>``: the list of
    tensors and numbers that ``torch.save`` put there, as they are. ``overrides`` are lever values,
    ``parameters`` is ``official``, ``seeded:<seed>`` (the model built under another seed),
    ``redrawn:<seed>`` or ``redrawn:<seed>:x<factor>``, ``layout`` is ``contiguous`` or ``strided``.
    ``order`` and ``surroundings`` are the conditions kernels run under, to which correct ones are
    blind: the order of threads and blocks, and what the memory around the buffers holds
    (``execute.cpu.device``).
    """

    id: str
    group: str
    seed: int
    transform: str = "official"
    overrides: tuple[tuple[str, int], ...] = ()
    parameters: str = "official"
    layout: str = "contiguous"
    order: str = "forward"
    surroundings: str = "finite"

    def to_json(self) -> dict[str, Any]:
        """The fields as plain JSON values."""
        return {**asdict(self), "overrides": dict(self.overrides)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> InputSpec:
        """The inverse of :meth:`to_json`; ``UsageError`` for missing or unknown fields."""
        fields = dict(data)
        try:
            fields["overrides"] = tuple((str(k), int(v)) for k, v in fields["overrides"].items())
            return cls(**fields)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UsageError(
                f"is no input: {error}",
                where=str(fields.get("id", "input")),
                hint=f"an input has the fields {', '.join(cls.__slots__)}",
            ) from error


def official_inputs() -> tuple[InputSpec, ...]:
    """The five inputs that KernelBench's checker draws, in its order."""
    return tuple(
        InputSpec(f"official-{index}", "official", seed)
        for index, seed in enumerate(official_seeds())
    )


def verified_inputs() -> tuple[InputSpec, ...]:
    """What KernelBench-Verified adds to the first official input: its values times 3, 0.01 and -1.

    Its fourth input, times 1, is the first official one.
    """
    seed = official_seeds(1)[0]
    names = ("verified-x3", "verified-x0.01", "verified-x-1")
    return tuple(InputSpec(name, "verified", seed, name) for name in names)


def battery(
    problem: Problem,
    *,
    size: str = FULL,
    trial: Callable[[Mapping[str, int]], Verdict] | None = None,
    precise: Callable[[InputSpec], bool] | None = None,
    frozen: frozenset[str] = frozenset(),
) -> tuple[InputSpec, ...]:
    """The inputs for one problem, at most 39 (``quick``: 22, ``brief``: 10), in a fixed order.

    ``trial`` tells whether a shape fits, ``precise`` whether the references agree on an input;
    ``frozen`` names the sizes that must not move.
    Without them the problem is not executed, and some inputs may turn out not to fit it;
    :func:`input_trials.settled_battery` tries them.
    """
    if size not in _SIZES:
        raise unknown_name("battery", size, _SIZES)
    counts = _SIZES[size]
    seed = _TARGETED_SEED
    taken: set[InputSpec] = set()

    def best(candidates: Iterable[InputSpec]) -> Iterator[InputSpec]:
        """The first new one that is precise, else the first: the validity gate will tell why."""
        new = [spec for spec in candidates if spec not in taken]
        chosen = next((spec for spec in new if precise is None or precise(spec)), None)
        for spec in [chosen] if chosen else new[:1]:
            taken.add(spec)
            yield spec

    targeted = [
        spec
        for names in TARGETED[: counts.targeted]
        for spec in best(InputSpec(f"{name}-s{seed}", "targeted", seed, name) for name in names)
    ]
    redraws = _PARAMETER_INPUTS[: counts.parameters] if has_parameters(problem) else ()
    strided = [InputSpec("strided/sign-mixed", "layout", seed, "sign-mixed", layout="strided")]
    strided = strided[: counts.layout]
    fixed = [*official_inputs(), *targeted]
    room = counts.total - len(fixed) - len(redraws) - len(strided)
    sizes = shape_overrides(problem, min(room, MOST_SHAPES), trial, frozen)
    shapes = [
        spec
        for index, moved in enumerate(sizes)
        for spec in best(
            _shape_inputs(
                moved,
                _SHAPE_VALUES[index % len(_SHAPE_VALUES)],
                bool(redraws),
                *_CONDITIONS[index % len(_CONDITIONS)],
            )
        )
    ]
    parameters = [
        spec
        for number, kinds, names in redraws
        for spec in best(_redrawn_inputs(number, kinds, names))
    ]
    return (*fixed, *parameters, *strided, *shapes)


def _redrawn_inputs(number: int, kinds: Sequence[str], names: Sequence[str]) -> Iterator[InputSpec]:
    for kind in kinds:
        factor = kind.split(":")[2:]
        for name in names:
            text = "/".join((f"params-redrawn-{number}", *factor, name))
            yield InputSpec(text, "parameters", _TARGETED_SEED, name, parameters=kind)


def _shape_inputs(
    moved: Overrides, names: Sequence[str], redrawn: bool, order: str, surroundings: str
) -> Iterator[InputSpec]:
    """Other sizes; with ``redrawn`` parameters, since a norm's ones and zeros show little.

    Sizes off the tile edges are where a kernel oversteps its buffers, so what lies there matters.
    """
    parameters = "redrawn:1001" if redrawn else "official"
    sizes = ",".join(f"{name}={value}" for name, value in moved)
    for name in names:
        text = f"{sizes}/{name}" + "/redrawn" * redrawn
        yield InputSpec(
            text,
            "shape",
            _TARGETED_SEED,
            name,
            moved,
            parameters,
            order=order,
            surroundings=surroundings,
        )


def beside(spec: InputSpec, sizes: Overrides) -> InputSpec:
    """An input of a problem scaled to ``sizes``, as a small input of the problem itself."""
    overrides = tuple(sorted({**dict(sizes), **dict(spec.overrides)}.items()))
    return replace(spec, id=f"{SMALL}{spec.id}", overrides=overrides)


def has_parameters(problem: Problem) -> bool:
    """Whether the source mentions a parameter, or a torch module that has some."""
    stems = ("Linear", "Conv", "Norm", "Embedding", "LSTM", "GRU", "RNN", "Attention", "Bilinear")
    names = {"Parameter", "PReLU", "register_parameter"}
    affine = re.search(r"\baffine\s*=\s*True", problem.source) is not None
    for node in ast.walk(ast.parse(problem.source)):
        name = getattr(node, "attr", getattr(node, "id", ""))
        if not isinstance(node, (ast.Attribute, ast.Name)):
            continue
        if "InstanceNorm" in name and not affine:
            continue  # it has none unless asked for
        if name in names or any(stem in name for stem in stems):
            return True
    return False


def materialise(
    loaded: LoadedProblem, spec: InputSpec
) -> tuple[list[Any], dict[str, torch.Tensor]]:
    """The inputs and the model's state dict of ``spec``, on the CPU; see :func:`draw`."""
    return draw(loaded, spec), parameters(loaded, spec)


def draw(loaded: LoadedProblem, spec: InputSpec, device: torch.device | None = None) -> list[Any]:
    """The inputs of ``spec``, on ``device`` or else on the CPU.

    ``loaded`` must have been loaded with ``dict(spec.overrides)``. With a device, what checkers
    draw at the official sizes is drawn there: the same distribution, another stream. All else is
    made on the CPU and moved, so that it is the same bytes everywhere. Raises
    ``UsageError`` for an unknown transform, layout or parameters, ``ProblemError`` when the
    problem cannot draw or build at these sizes.
    """
    if dict(loaded.overrides) != dict(spec.overrides):
        raise UsageError(
            f"needs the sizes {dict(spec.overrides)}, the problem has {dict(loaded.overrides)}",
            where=spec.id,
            hint="load the problem with the input's overrides",
        )
    values = _values(loaded, spec, device)
    return values if device is None else [moved(x, device) for x in values]


def _values(loaded: LoadedProblem, spec: InputSpec, device: torch.device | None) -> list[Any]:
    from kernelassay.input_values import named_transform, transformed

    if spec.transform.startswith(GIVEN):
        import torch

        return list(torch.load(spec.transform.removeprefix(GIVEN)))
    transform = named_transform(spec.transform)
    if spec.layout not in ("contiguous", "strided"):
        raise unknown_name("layout", spec.layout, ("contiguous", "strided"))
    there = device is not None and spec.group in CHECKERS and not spec.overrides
    with device if device is not None and there else nullcontext():
        drawn = loaded.draw(spec.seed)
    values = transformed(drawn, transform, spec.seed)
    return in_layout(values, spec)


def in_layout(values: list[Any], spec: InputSpec) -> list[Any]:
    """Contiguous inputs in the layout of ``spec``."""
    return [_strided(value) for value in values] if spec.layout == "strided" else values


def moved(value: Any, device: torch.device) -> Any:
    """``value`` on ``device`` in its own strides, which ``Tensor.to`` keeps of dense ones only."""
    import torch

    if not isinstance(value, torch.Tensor) or value.device == device:
        return value
    if value.is_contiguous():
        return value.to(device)
    spans = zip(value.shape, value.stride(), strict=True)
    length = 1 + sum((extent - 1) * stride for extent, stride in spans)
    memory = value.as_strided((length,), (1,))
    return memory.to(device).as_strided(value.shape, value.stride())


def digest(inputs: Sequence[Any]) -> str:
    """SHA-256, in hex, over the bytes, shapes and dtypes of inputs; the layout does not count."""
    import torch

    total = hashlib.sha256()
    for value in inputs:
        if isinstance(value, torch.Tensor):
            total.update(f"{value.dtype}{tuple(value.shape)}".encode())
            flat = value.detach().cpu().contiguous().reshape(-1)
            total.update(flat.view(torch.uint8).numpy().tobytes())
        else:
            total.update(f"{type(value).__name__}:{value!r}".encode())
        total.update(b";")
    return total.hexdigest()


def _strided(value: Any) -> Any:
    """The same values in transposed storage; every second element where that would not show."""
    import torch

    if not isinstance(value, torch.Tensor) or not value.is_floating_point() or value.dim() < 2:
        return value
    turned = value.transpose(-1, -2).contiguous().transpose(-1, -2)
    if not turned.is_contiguous() or value.numel() < 2:
        return turned
    wide = value.new_zeros(*value.shape, 2)
    wide[..., 0] = value
    return wide[..., 0]


def parameters(loaded: LoadedProblem, spec: InputSpec) -> dict[str, torch.Tensor]:
    """The model's state dict of ``spec``, on the CPU."""
    if spec.parameters == "official":
        return dict(loaded.build_model(MODEL_SEED).state_dict())
    seeded = re.fullmatch(r"seeded:(\d+)", spec.parameters)
    if seeded is not None:
        return dict(loaded.build_model(int(seeded[1])).state_dict())
    match = re.fullmatch(r"redrawn:(\d+)(?::x(\d+))?", spec.parameters)
    if match is None:
        known = ("official", "seeded:<seed>", "redrawn:<seed>", "redrawn:<seed>:x<factor>")
        raise unknown_name("parameters", spec.parameters, known)
    return redrawn_state(loaded, int(match[1]), int(match[2] or 1))


def redrawn_state(loaded: LoadedProblem, seed: int, factor: int = 1) -> dict[str, torch.Tensor]:
    """A fresh initialisation; constant parameters (a norm's ones and zeros) get noise added.

    Without the noise a kernel that forgets a norm's gain or bias would never show. All parameters
    are then multiplied by ``factor``. Buffers stay as initialised.
    """
    import torch

    from kernelassay.input_values import Source, generator_for

    model = loaded.build_model(seed)
    with torch.no_grad():
        for index, parameter in enumerate(model.parameters()):
            if parameter.numel() and bool((parameter == parameter.flatten()[0]).all()):
                noise = Source(generator_for(seed, index)).mixed(parameter)
                parameter.add_((0.5 * noise).to(parameter.dtype))
            parameter.mul_(factor)
    return dict(model.state_dict())
