"""CurvatureOperator and ParameterOperator, in each of their parts, keep the contract of every operator."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call

from runner.curvature import CurvatureOperator, Dag, ParameterOperator, verify
from tests.curvature.cases import dense_gauss_newton, dense_hessian, make
from tests.curvature.contract import BlockContract, EstimatorContract


class CurvatureContract(BlockContract):
    part = "total"
    graph = "diamond_cat"

    def build(self, dtype=torch.float64, scale=1.0, budget=None, poison=False):
        case = make(self.graph)
        x = case.x.to(dtype)
        if poison:
            x[1, 0] = math.nan
        dag = case.dag if dtype == torch.float64 else case.dag.to(dtype)
        loss = "cross_entropy"
        if scale != 1:
            loss = lambda f, y: scale * F.cross_entropy(f, y, reduction="none")  # noqa: E731
        memory = {} if budget is None else {"memory_budget": budget}
        return CurvatureOperator(Dag(dag.nodes.values(), loss), x, case.y, part=self.part, **memory)

    def dense(self):
        case = make(self.graph)
        total, newton = dense_hessian(case, case.nodes), dense_gauss_newton(case, case.nodes)
        blocks = {"total": total, "gauss_newton": newton, "tensor": {p: total[p] - newton[p] for p in total}}[self.part]
        return torch.cat([torch.cat([blocks[v, w] for w in case.nodes], 1) for v in case.nodes])


class TestTotal(CurvatureContract, EstimatorContract):
    pass


class TestGaussNewton(CurvatureContract):
    part = "gauss_newton"

    def test_it_is_positive_semi_definite(self):
        assert float(torch.linalg.eigvalsh(self.build().dense()).min()) > -1e-12


class TestTensor(CurvatureContract):
    part = "tensor"

    def test_parts_add_up(self):
        operator = self.build()
        total, newton = operator.apply_parts(self.directions(operator))
        found = self.stacked(operator, operator.apply(self.directions(operator)))
        assert torch.equal(found, self.stacked(operator, {v: total[v] - newton[v] for v in total}))


class TestTokens(CurvatureContract):
    graph = "attention"
    dtypes = (torch.float64,)
    scales = ()

    def build(self, dtype=torch.float64, scale=1.0, budget=None, poison=False):
        case = make(self.graph)
        if poison:
            case.x[1, 0, 0] = math.nan
        memory = {} if budget is None else {"memory_budget": budget}
        return CurvatureOperator(case.dag, case.x, case.y, part=self.part, **memory)


@pytest.mark.parametrize("name", ["dense", "build"])
def test_the_contract_needs_both(name):
    with pytest.raises(TypeError, match=name):
        BlockContract()


class ParameterContract(BlockContract):
    """The same laws over the parameters of a module, in two batches."""

    part = "hessian"

    def build(self, dtype=torch.float64, scale=1.0, budget=None, poison=False):
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)).to(dtype)
        x, y = torch.randn(6, 3, generator=torch.Generator().manual_seed(1)).to(dtype), torch.arange(6) % 3
        if poison:
            x[1, 0] = math.nan
        memory = {} if budget is None else {"memory_budget": budget}
        data = [(x[:4], y[:4]), (x[4:], y[4:])]
        loss = nn.CrossEntropyLoss() if scale == 1 else lambda f, t: scale * F.cross_entropy(f, t)
        return ParameterOperator(module, loss, data, part=self.part, check=not poison, **memory)

    def dense(self):
        operator = self.build()
        x, y = (torch.cat(t) for t in zip(*operator.data, strict=True))
        names = list(operator.layout.parameters)
        flat = torch.cat([p.detach().flatten() for p in operator.layout.parameters.values()])
        sizes = [p.numel() for p in operator.layout.parameters.values()]

        def output(theta):
            pieces = zip(names, theta.split(sizes), strict=True)
            placed = {k: t.view_as(operator.layout.parameters[k]) for k, t in pieces}
            return functional_call(operator.module, placed, (x,))

        if self.part == "hessian":
            return torch.autograd.functional.hessian(lambda t: F.cross_entropy(output(t), y), flat)
        jacobian = torch.autograd.functional.jacobian(output, flat)
        if self.part == "empirical_fisher":
            slopes = (output(flat).softmax(1) - F.one_hot(y, 3)).detach()
            gradients = torch.einsum("bk,bkn->bn", slopes, jacobian)
            return gradients.mT @ gradients / len(x)
        curved = torch.autograd.functional.hessian(lambda f: F.cross_entropy(f, y), output(flat).detach())
        return torch.einsum("bkn,bkcl,clm->nm", jacobian, curved, jacobian)


class CertifiedContract(ParameterContract):
    def test_it_is_certified_group_by_group_and_a_change_is_told(self):
        for dtype in self.dtypes:
            found = verify(self.build(dtype), generator=torch.Generator().manual_seed(0))
            assert found.ok and not found.reasons and len(found.examples) == 2, str(found)
            assert set(found.nodes) == {"0", "2"} and "batches alone" in str(found)
        operator = self.build()
        right = operator._product
        operator._product = lambda *a: right(*a) * torch.cat([torch.ones(16), torch.full((15,), 1.01)])
        wrong = verify(operator, generator=torch.Generator().manual_seed(0))
        assert not wrong.ok and "group '2'" in wrong.reasons[0] and wrong.nodes["0"] < 1e-7


class TestParameterHessian(CertifiedContract, EstimatorContract):
    pass


class TestParameterGaussNewton(CertifiedContract):
    part = "gauss_newton"


class TestFisher(ParameterContract):
    """Of cross-entropy: the Gauss-Newton matrix."""

    part = "fisher"
    scales = ()  # targets have a distribution of their own


class TestEmpiricalFisher(ParameterContract):
    part = "empirical_fisher"
    scales = ()  # of the square of the loss
