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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from kernelassay.errors import ProblemError, UsageError, unknown_name
from kernelassay.input_shapes import GROWTH, SMALL_VOLUME, Verdict, shape_overrides
from kernelassay.kernelbench import official_seeds
from kernelassay.problem import MODEL_SEED, LoadedProblem, Problem, load

if TYPE_CHECKING:
    import torch

GROUPS = ("official", "targeted", "shape", "parameters", "layout")
FULL_BATTERY = 32
QUICK_BATTERY = 20
SMALL_WORK = 4_000_000

TARGETED = (
    "sign-mixed",
    "negated",
    "large-1e2",
    "huge-3e5",
    "large-sign-mixed",
    "opposed",
    "one-hot",
    "ramp",
    "ties",
    # The first nine make the quick battery.
    "large-1e4",
    "near-zero-1e-3",
    "near-zero-1e-6",
    "constant-rows",
    "spike",
    "permuted",
    "all-negative",
    "wide",
    "sorted-descending",
)
_QUICK_TARGETED = 9
_TARGETED_SEED = 1
_PARAMETER_SEEDS = (1001, 1002)


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One test input of a problem.

    ``transform`` names an entry of ``input_values.TRANSFORMS``. ``overrides`` are lever values,
    ``parameters`` is ``official`` or ``redrawn:<seed>``, ``layout`` is ``contiguous`` or
    ``strided``.
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
) -> tuple[InputSpec, ...]:
    """The inputs for one problem, at most 32 (``quick``: 20), always in the same order.

    Without ``trial`` the problem is not executed, and some shapes may turn out not to fit it;
    :func:`settled_battery` tries them.
    """
    specs = list(official_inputs())
    targeted = TARGETED[:_QUICK_TARGETED] if quick else TARGETED
    seed = _TARGETED_SEED
    specs += [InputSpec(f"{name}-s{seed}", "targeted", seed, name) for name in targeted]
    if has_parameters(problem):
        for number, redraw in enumerate(_PARAMETER_SEEDS, start=1):
            transform = ("sign-mixed", "official")[number - 1]
            name = f"params-redrawn-{number}/{transform}"
            specs.append(
                InputSpec(name, "parameters", seed, transform, parameters=f"redrawn:{redraw}")
            )
    specs.append(InputSpec("strided/sign-mixed", "layout", seed, "sign-mixed", layout="strided"))
    room = (QUICK_BATTERY if quick else FULL_BATTERY) - len(specs)
    for index, overrides in enumerate(shape_overrides(problem, room, trial)):
        # Drawn values in between: some references are defined on their own domain only.
        transform = ("sign-mixed", "official")[index % 2]
        sizes = ",".join(f"{name}={value}" for name, value in overrides)
        specs.append(InputSpec(f"{sizes}/{transform}", "shape", seed, transform, overrides))
    return tuple(specs)


def settled_battery(problem: Problem, quick: bool = False) -> tuple[InputSpec, ...]:
    """:func:`battery` with shapes that run and cost little. EXECUTES the problem: in a worker only.

    A shape may cost four times the work and elements of the problem's own sizes, or 4 MFLOP and
    64k elements where that is more.
    """
    from kernelassay.measure import TooLargeError, measure

    own = measure(load(problem), fake=True)
    work = max(GROWTH * own.work, SMALL_WORK)
    elements = max(GROWTH * own.elements, SMALL_VOLUME)

    @cache
    def tried(overrides: tuple[tuple[str, int], ...]) -> Verdict:
        try:
            found = measure(load(problem, dict(overrides)), element_limit=elements)
        except TooLargeError:
            return "too-large"
        except ProblemError:
            return "refused"
        if found.work > work or found.elements > elements:
            return "too-large"
        return "fits" if found.finite else "refused"

    return battery(problem, quick=quick, trial=lambda moved: tried(tuple(moved.items())))


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
    kind, _, text = spec.parameters.partition(":")
    if kind != "redrawn" or not text.isdigit():
        raise unknown_name("parameters", spec.parameters, ("official", "redrawn:<seed>"))
    return redrawn_state(loaded, int(text))


def redrawn_state(loaded: LoadedProblem, seed: int) -> dict[str, torch.Tensor]:
    """A fresh initialisation; constant parameters (a norm's ones and zeros) get noise added.

    Without the noise a kernel that forgets a norm's gain or bias would never show. Buffers stay
    as initialised.
    """
    import torch

    from kernelassay.input_values import Source, generator_for

    model = loaded.build_model(seed)
    with torch.no_grad():
        for index, parameter in enumerate(model.parameters()):
            if parameter.numel() and bool((parameter == parameter.flatten()[0]).all()):
                noise = Source(generator_for(seed, index)).mixed(parameter)
                parameter.add_((0.5 * noise).to(parameter.dtype))
    return dict(model.state_dict())
