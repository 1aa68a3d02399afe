"""Programs decompose as PyTorch's own ``run_decompositions`` would do it."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from kernelassay.decompose import KEPT_WHOLE, decompose, default_table


class Network(nn.Module):
    """Operators of all kinds: composite in C++, composite in Python, kept whole, plain."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding="same")
        self.norm = nn.BatchNorm2d(4)
        self.linear = nn.Linear(4, 4)
        self.attention = nn.MultiheadAttention(4, 2, dropout=0.0, batch_first=True)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = F.silu(self.norm(self.conv(x)))
        y = F.adaptive_avg_pool2d(F.interpolate(y, scale_factor=2.0), 4)
        rows = F.layer_norm(self.linear(y.flatten(2).mT), (4,))
        mixed, _ = self.attention(rows, rows, rows)
        scores = torch.einsum("bij,bkj->bik", mixed, rows).softmax(-1)
        lost = F.kl_div(scores.log(), scores.mT, reduction="batchmean")
        return scores @ mixed, F.cross_entropy(mixed.mT, rows.argmax(-1)), lost, F.mish(y).var(1)


MODULES: dict[str, Callable[[], nn.Module]] = {
    "many operators": Network,
    "resized between pixels": lambda: nn.Upsample(scale_factor=2, mode="bilinear"),
    "resized by another rule": lambda: nn.Upsample(scale_factor=2, mode="bicubic"),
}


@pytest.mark.parametrize("kind", MODULES)
def test_a_program_decomposes_as_with_the_default_table(kind: str) -> None:
    with torch.no_grad():
        program = torch.export.export(MODULES[kind](), (torch.rand(2, 3, 8, 8),))
        ours, theirs = decompose(program), program.run_decompositions(default_table())
    assert str(ours.graph) == str(theirs.graph)
    assert ours.graph_signature == theirs.graph_signature
    shapes = [[str(node.meta.get("val")) for node in p.graph.nodes] for p in (ours, theirs)]
    assert shapes[0] == shapes[1]


def test_operators_that_are_kept_whole_stay() -> None:
    with torch.no_grad():
        program = torch.export.export(Network(), (torch.rand(2, 3, 8, 8),))
        graph = str(decompose(program).graph)
    named = {name for name in KEPT_WHOLE if f"aten.{name}.default" in graph}
    assert named == {"cross_entropy_loss", "kl_div", "mish"}


def test_a_torch_without_the_parts_uses_its_own_way(monkeypatch: pytest.MonkeyPatch) -> None:
    with torch.no_grad():
        program = torch.export.export(Network(), (torch.rand(2, 3, 8, 8),))
        ours = decompose(program)
        monkeypatch.setattr("kernelassay.decompose.PARTS", ((torch.export, "no_such_part"),))
        assert str(decompose(program).graph) == str(ours.graph)
