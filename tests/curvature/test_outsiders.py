"""Networks of kinds that the engine was not written with: right against a dense float64 Hessian, or refused clearly."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from runner.curvature import ParameterOperator, exact_blocks, trace_module, verify
from tests.curvature.cases import relative_error
from tests.curvature.module_cases import ModuleCase, classes, hessian_by_hooks, ready, x
from tests.curvature.test_parameter_modules import dense_hessian, ordered


class WeightNormed(nn.Module):
    """Convolutions whose weights are computed from direction and length, with dilation and groups."""

    def __init__(self) -> None:
        super().__init__()
        self.first = weight_norm(nn.Conv1d(2, 4, 3, padding=2, dilation=2))
        self.second = weight_norm(nn.Conv1d(4, 4, 3, padding=1, groups=2))
        self.head = nn.Linear(4, 2)

    def forward(self, t: Tensor) -> Tensor:
        h = F.silu(self.first(t))
        return self.head((h + F.silu(self.second(h))).mean(2))


class UNet(nn.Module):
    """Down, up, and a skip by concatenation; GroupNorm and InstanceNorm; an output for each pixel."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.SiLU())
        self.deep = nn.Sequential(nn.Conv2d(4, 4, 3, stride=2, padding=1), nn.InstanceNorm2d(4), nn.GELU())
        self.up = nn.ConvTranspose2d(4, 4, 2, stride=2)
        self.out = nn.Conv2d(8, 2, 1)

    def forward(self, t: Tensor) -> Tensor:
        skip = self.down(t)
        return self.out(torch.cat([skip, self.up(self.deep(skip))], 1))


class Bag(nn.Module):
    """Bags of words: embeddings summed with weights of each word, beside a plain feature."""

    def __init__(self) -> None:
        super().__init__()
        self.bag, self.mix = nn.EmbeddingBag(7, 3, mode="sum"), nn.Bilinear(3, 2, 4)
        self.head = nn.Linear(4, 2)

    def forward(self, words: Tensor, weights: Tensor, features: Tensor) -> Tensor:
        return self.head(torch.tanh(self.mix(self.bag(words, per_sample_weights=weights), features)))


def bag() -> ModuleCase:
    words = torch.tensor([[0, 1, 6], [2, 2, 3], [4, 5, 0], [6, 1, 1]])
    given = {"words": words, "weights": torch.rand(4, 3, dtype=torch.float64), "features": x(4, 2)}
    return ModuleCase(ready(Bag()), given, classes(4, 2), nn.CrossEntropyLoss())


OUTSIDERS = {
    "weight norm": lambda: ModuleCase(ready(WeightNormed()), x(3, 2, 5), classes(3, 2), nn.CrossEntropyLoss()),
    "unet": lambda: ModuleCase(
        ready(UNet()), x(2, 1, 4, 4), classes(32, 2).view(2, 4, 4), nn.CrossEntropyLoss(), ["down", "up", "out"]
    ),
    "embedding bag": bag,
}


@pytest.mark.parametrize("name", OUTSIDERS)
def test_blocks_between_layers(name):
    torch.manual_seed(1)
    case = OUTSIDERS[name]()
    dag = trace_module(case.module, case.loss, case.batch, case.nodes)
    expected = hessian_by_hooks(case, [v for v in dag.order if v != "output"])
    found = exact_blocks(dag, dag.x, dag.y)
    assert relative_error({p: found[p] for p in expected}, expected) < 1e-10
    assert verify(dag, dag.x, dag.y, generator=torch.Generator().manual_seed(0)).ok


@pytest.mark.parametrize("name", [name for name in OUTSIDERS if name != "embedding bag"])
def test_products_over_parameters(name):
    torch.manual_seed(1)
    case = OUTSIDERS[name]()
    operator = ParameterOperator(case.module, case.loss, [case.batch])
    expected = ordered(operator, dense_hessian(case))
    v = torch.randn(len(expected), dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    split = ParameterOperator(case.module, case.loss, [case.batch], memory_budget=1, check=False)
    for found in (operator, split):
        assert torch.allclose(found @ v, expected @ v, rtol=1e-8, atol=1e-10 * float(expected.norm()))
    for part in ("hessian", "gauss_newton"):
        certificate = verify(operator.with_part(part), generator=torch.Generator().manual_seed(0))
        assert certificate.ok, str(certificate)


def test_an_embedding_bag_has_no_second_derivative_in_torch_and_is_told():
    torch.manual_seed(1)
    case = bag()
    for part in ("hessian", "gauss_newton"):
        with pytest.raises(ValueError, match=r"embedding_bag.*nn\.Embedding and a sum\), or leave its parameters out"):
            ParameterOperator(case.module, case.loss, [case.batch], part=part)
        operator = ParameterOperator(case.module, case.loss, [case.batch], ["mix", "head"], part)
        assert verify(operator, generator=torch.Generator().manual_seed(0)).ok


class Skewed(torch.autograd.Function):
    """A backward that takes a value it depends on for a constant, as torch's own weight norm does."""

    @staticmethod
    def forward(ctx, v: Tensor) -> Tensor:
        ctx.save_for_backward(v)
        ctx.norm = v.detach().norm()
        return v / ctx.norm

    @staticmethod
    def backward(ctx, g: Tensor) -> Tensor:
        (v,) = ctx.saved_tensors
        return g / ctx.norm - v * (v * g).sum() / ctx.norm**3


def test_a_wrong_second_derivative_is_refused_by_symmetry_and_named_by_the_certificate():
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.head = nn.Linear(3, 4), nn.Linear(4, 2)

        def forward(self, t: Tensor) -> Tensor:
            return self.head(torch.tanh(F.linear(t, Skewed.apply(self.first.weight), self.first.bias)))

    torch.manual_seed(0)
    module, batch = Net().double(), (x(5, 3), classes(5, 2))
    with pytest.raises(ValueError, match="not those of a symmetric matrix"):
        ParameterOperator(module, nn.CrossEntropyLoss(), [batch])
    unchecked = ParameterOperator(module, nn.CrossEntropyLoss(), [batch], check=False)
    found = verify(unchecked, generator=torch.Generator().manual_seed(0))
    assert not found.ok and "group 'first'" in found.reasons[0]
