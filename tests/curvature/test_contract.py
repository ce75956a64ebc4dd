"""CurvatureOperator in each of its parts keeps the contract of every operator."""

import math

import pytest
import torch
import torch.nn.functional as F

from runner.curvature import CurvatureOperator, Dag
from tests.curvature.cases import dense_gauss_newton, dense_hessian, make
from tests.curvature.contract import BlockContract


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


class TestTotal(CurvatureContract):
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
