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
from dataclasses import asdict, dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from kernelassay.errors import ProblemError, UsageError, unknown_name
from kernelassay.input_shapes import GROWTH, SMALL_VOLUME, Overrides, Verdict, shape_overrides
from kernelassay.kernelbench import official_seeds
from kernelassay.problem import MODEL_SEED, LoadedProblem, Problem, load

if TYPE_CHECKING:
    import torch

GROUPS = ("official", "targeted", "shape", "parameters", "layout")
FULL_BATTERY = 36
QUICK_BATTERY = 22
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
_QUICK_TARGETED = 9
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
_QUICK_PARAMETERS = 2

# A candidate's references must agree within this share of the validity tolerance. Correct kernels
# stray up to ten times as far as the float32 reference does (Welford moments of offset values), and
# half the tolerance is their limit.
_CHOICE_LIMIT = 0.05


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One test input of a problem.

    ``transform`` names an entry of ``input_values.TRANSFORMS``. ``overrides`` are lever values,
    ``parameters`` is ``official``, ``redrawn:<seed>`` or ``redrawn:<seed>:x<factor>``, ``layout``
    is ``contiguous`` or ``strided``.
    """

    id: str
    group: str
    seed: int
    transform: str = "official"
    overrides: tuple[tuple[str, int], ...] = ()
    parameters: str = "official"
    layout: str = "contiguous"

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


def battery(
    problem: Problem,
    *,
    quick: bool = False,
    trial: Callable[[Mapping[str, int]], Verdict] | None = None,
    precise: Callable[[InputSpec], bool] | None = None,
) -> tuple[InputSpec, ...]:
    """The inputs for one problem, at most 36 (``quick``: 22), always in the same order.

    ``trial`` tells whether a shape fits, ``precise`` whether the references agree on an input.
    Without them the problem is not executed, and some inputs may turn out not to fit it;
    :func:`settled_battery` tries them.
    """
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
        for names in (TARGETED[:_QUICK_TARGETED] if quick else TARGETED)
        for spec in best(InputSpec(f"{name}-s{seed}", "targeted", seed, name) for name in names)
    ]
    redraws = _PARAMETER_INPUTS if has_parameters(problem) else ()
    redraws = redraws[:_QUICK_PARAMETERS] if quick else redraws
    strided = InputSpec("strided/sign-mixed", "layout", seed, "sign-mixed", layout="strided")
    fixed = [*official_inputs(), *targeted]
    room = (QUICK_BATTERY if quick else FULL_BATTERY) - len(fixed) - len(redraws) - 1
    sizes = shape_overrides(problem, room, trial)
    shapes = [
        spec
        for index, moved in enumerate(sizes)
        for spec in best(
            _shape_inputs(moved, _SHAPE_VALUES[index % len(_SHAPE_VALUES)], bool(redraws))
        )
    ]
    parameters = [
        spec
        for number, kinds, names in redraws
        for spec in best(_redrawn_inputs(number, kinds, names))
    ]
    return (*fixed, *parameters, strided, *shapes)


def _redrawn_inputs(number: int, kinds: Sequence[str], names: Sequence[str]) -> Iterator[InputSpec]:
    for kind in kinds:
        factor = kind.split(":")[2:]
        for name in names:
            text = "/".join((f"params-redrawn-{number}", *factor, name))
            yield InputSpec(text, "parameters", _TARGETED_SEED, name, parameters=kind)


def _shape_inputs(moved: Overrides, names: Sequence[str], redrawn: bool) -> Iterator[InputSpec]:
    """Other sizes; with ``redrawn`` parameters, since a norm's ones and zeros show little."""
    parameters = "redrawn:1001" if redrawn else "official"
    sizes = ",".join(f"{name}={value}" for name, value in moved)
    for name in names:
        text = f"{sizes}/{name}" + "/redrawn" * redrawn
        yield InputSpec(text, "shape", _TARGETED_SEED, name, moved, parameters)


def settled_battery(problem: Problem, quick: bool = False) -> tuple[InputSpec, ...]:
    """:func:`battery` with shapes that run and cost little, and values the references bear.

    EXECUTES the problem: in a worker only. A shape may cost twice the work and elements of
    the problem's own sizes, or 1 MFLOP and 32k elements where that is more.
    """
    from kernelassay.gate import VALIDITY_TOLERANCE
    from kernelassay.measure import TooLargeError, measure
    from kernelassay.references import disagreement

    own = measure(load(problem), fake=True)
    work = max(GROWTH * own.work, SMALL_WORK)
    elements = max(GROWTH * own.elements, SMALL_VOLUME)
    loaded = cache(lambda overrides: load(problem, dict(overrides)))

    @cache
    def tried(overrides: Overrides) -> Verdict:
        try:
            found = measure(loaded(overrides), element_limit=elements)
        except TooLargeError:
            return "too-large"
        except ProblemError:
            return "refused"
        if found.work > work or found.elements > elements:
            return "too-large"
        return "fits" if found.finite else "refused"

    def precise(spec: InputSpec) -> bool:
        module = loaded(spec.overrides)
        inputs, state = materialise(module, spec)
        return disagreement(module, state, inputs, spec.seed) <= _CHOICE_LIMIT * VALIDITY_TOLERANCE

    return battery(
        problem,
        quick=quick,
        trial=lambda moved: tried(tuple(moved.items())),
        precise=precise,
    )


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
    """The inputs and the model's state dict of ``spec``.

    ``loaded`` must have been loaded with ``dict(spec.overrides)``. Tensors are on the CPU. Raises
    ``UsageError`` for an unknown transform, layout or parameters, ``ProblemError`` when the
    problem cannot draw or build at these sizes.
    """
    from kernelassay.input_values import TRANSFORMS, transformed

    if dict(loaded.overrides) != dict(spec.overrides):
        raise UsageError(
            f"needs the sizes {dict(spec.overrides)}, the problem has {dict(loaded.overrides)}",
            where=spec.id,
            hint="load the problem with the input's overrides",
        )
    if spec.transform not in TRANSFORMS:
        raise unknown_name("transform", spec.transform, TRANSFORMS)
    if spec.layout not in ("contiguous", "strided"):
        raise unknown_name("layout", spec.layout, ("contiguous", "strided"))
    values = transformed(loaded.draw(spec.seed), TRANSFORMS[spec.transform], spec.seed)
    if spec.layout == "strided":
        values = [_strided(value) for value in values]
    return values, _state(loaded, spec)


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


def _state(loaded: LoadedProblem, spec: InputSpec) -> dict[str, torch.Tensor]:
    if spec.parameters == "official":
        return dict(loaded.build_model(MODEL_SEED).state_dict())
    match = re.fullmatch(r"redrawn:(\d+)(?::x(\d+))?", spec.parameters)
    if match is None:
        known = ("official", "redrawn:<seed>", "redrawn:<seed>:x<factor>")
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
