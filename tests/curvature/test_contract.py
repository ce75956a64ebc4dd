"""LayerOperator, of a stated graph too, and ParameterOperator, in each of their parts, keep the
contract of every operator."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from runner.curvature import (
    Dag,
    LayerOperator,
    ParameterOperator,
    split_blocks,
)
from tests.curvature.cases import dense_gauss_newton, dense_hessian, make, node_operator
from tests.curvature.contract import BlockContract, EstimatorContract
from tests.curvature.oracles import assembled, parameter_matrix
from tests.draws import seeded, tanh_net


class GraphContract(BlockContract):
    """Between the nodes of a stated graph."""

    part = "hessian"
    graph = "diamond_cat"

    def build(self, dtype=torch.float64, scale=1.0, budget=None, poison=False):
        case = make(self.graph)
        x, dag = case.x.to(dtype), case.dag.to(dtype)
        if poison:
            x[1] = math.nan
        if scale != 1:
            loss = lambda f, y: scale * F.cross_entropy(f, y, reduction="none")  # noqa: E731
            dag = Dag(dag.nodes.values(), loss)
        memory = {} if budget is None else {"memory_budget": budget}
        return node_operator(dag, x, case.y, part=self.part, check=not poison, **memory)

    def dense(self):
        case = make(self.graph)
        oracle = {"hessian": dense_hessian, "gauss_newton": dense_gauss_newton}[self.part]
        return assembled(oracle(case, case.nodes), case.nodes)


class TestGraphHessian(GraphContract, EstimatorContract):
    pass


class TestGraphGaussNewton(GraphContract):
    part = "gauss_newton"


class ParameterContract(BlockContract):
    """The same laws over the parameters of a module, in two batches."""

    part, kind = "hessian", ParameterOperator
    shifts = torch.cat([torch.zeros(12), torch.ones(3)])  # weights and bias of the last layer

    def build(self, dtype=torch.float64, scale=1.0, budget=None, poison=False):
        torch.manual_seed(0)
        module, y = tanh_net(3, 4, 3).to(dtype), torch.arange(6) % 3
        x = torch.randn(6, 3, generator=seeded(1)).to(dtype)
        if poison:
            x[1, 0] = math.nan
        memory = {} if budget is None else {"memory_budget": budget}
        data = [(x[:4], y[:4]), (x[4:], y[4:])]
        loss = nn.CrossEntropyLoss() if scale == 1 else lambda f, t: scale * F.cross_entropy(f, t)
        return self.kind(module, loss, data, part=self.part, check=not poison, **memory)

    def dense(self):
        operator = self.build()
        x, y = (torch.cat(t) for t in zip(*operator.data, strict=True))
        return parameter_matrix(self.part, operator.module, F.cross_entropy, x, y)


class TestParameterHessian(ParameterContract, EstimatorContract):
    pass


class TestParameterGaussNewton(ParameterContract):
    part = "gauss_newton"
    scales = ()  # the loss of the Hessian


class LayerContract(ParameterContract):
    """The same laws between the outputs of its layers."""

    kind, shifts = LayerOperator, None

    def dense(self):
        """Blocks of the module as a stated graph."""
        operator = self.build()
        x, y = (torch.cat(t) for t in zip(*operator.data, strict=True))
        dag = Dag.from_sequential(operator.module)
        split = split_blocks(dag, x, y, ["0", "2"])
        blocks = {"hessian": split.total, "gauss_newton": split.gauss_newton}[self.part]
        return assembled(blocks, ["0", "2"])


class TestLayerHessian(LayerContract, EstimatorContract):
    pass


class TestLayerGaussNewton(LayerContract):
    part = "gauss_newton"
    scales = ()  # the loss of the Hessian
