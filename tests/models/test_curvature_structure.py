"""The closed forms that the models state for the curvature engine are what their forward passes compute."""

import pytest
import torch

from runner.curvature import Dag, Node, split_blocks
from runner.curvature.exact.derivatives import evaluate
from runner.models.architectures import diamond, mlp

NETWORKS = {
    "plain": lambda: mlp(inputs=5, outputs=3, depth=3, width=4),
    "plain smooth without norm": lambda: mlp(inputs=5, outputs=3, depth=3, width=4, activation="gelu", norm=False),
    "residual": lambda: mlp(inputs=5, outputs=3, depth=3, width=4, residual=True, activation="silu"),
    "spectral": lambda: mlp(inputs=5, outputs=3, depth=2, width=4, norm=False, spectral=True, activation="tanh"),
    "leaky": lambda: mlp(inputs=5, outputs=3, depth=2, width=4, activation="leaky_relu"),
    "sum": lambda: diamond(inputs=5, outputs=3, branch_depth=2, width=4, merge="sum", activation="softplus"),
    "cat": lambda: diamond(inputs=5, outputs=3, branch_depth=2, width=4, merge="cat", activation="silu"),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_stated_structure_gives_the_blocks_of_automatic_differentiation(name):
    torch.manual_seed(0)
    dag = NETWORKS[name]().double().eval().to_dag()
    x, y = torch.randn(3, 5, dtype=torch.float64), torch.tensor([0, 2, 1])
    assert set(evaluate(dag, x).structures) == set(dag.order)
    opaque = Dag([Node(n.name, n.parents, lambda *p, fn=n.fn: fn(*p)) for n in dag.nodes.values()])
    assert not evaluate(opaque, x).structures
    found, expected = split_blocks(dag, x, y), split_blocks(opaque, x, y)
    for part in ("total", "gauss_newton", "tensor"):
        blocks, exact = getattr(found, part), getattr(expected, part)
        scale = max(float(block.abs().max()) for block in expected.total.values())
        assert max(float((blocks[pair] - exact[pair]).abs().max()) for pair in exact) < 1e-12 * scale


def test_spectral_weights_in_training_mode_are_refused():
    net = mlp(inputs=5, outputs=3, depth=2, width=4, norm=False, spectral=True).double()
    with pytest.raises(ValueError, match="not deterministic"):
        split_blocks(net.to_dag(), torch.randn(3, 5, dtype=torch.float64), torch.tensor([0, 2, 1]))
