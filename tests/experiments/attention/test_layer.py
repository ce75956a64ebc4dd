"""A layer of several attention heads against torch's own and automatic differentiation."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from experiments.attention.layer import Heads
from runner.curvature.closed_form import attention as att
from tests.draws import normal, seeded
from tests.errors import refusal


def random(*shape, seed):
    return normal(*shape, generator=seeded(seed))


@pytest.mark.parametrize(
    "heads, n, d, k",
    [(1, 4, 3, 3), (2, 5, 4, 2), (3, 3, 4, 1), (1, 1, 2, 2)],
)
def test_jacobian_is_that_of_autodiff(heads, n, d, k):
    layer = Heads(random(heads, d, d, seed=1), random(heads, d, k, seed=2))
    x = random(2, d, n, seed=3)
    found = layer.jacobian(x)
    assert found.shape == (2, n, heads * k, n * d)
    jacobian = torch.func.jacrev(lambda flat: layer.outputs(att.unvec(flat, d)))
    wanted = torch.stack([jacobian(att.vec(one)) for one in x])
    assert_close(found, wanted, rtol=1e-12, atol=1e-12)


def test_one_head_is_the_paper_s():
    x, w, v = random(3, 4, seed=4), random(3, 3, seed=5), random(3, 3, seed=6)
    layer = Heads(w[None], v[None])
    assert_close(layer.outputs(x), att.outputs(x, w, v), rtol=1e-13, atol=1e-13)
    assert_close(layer.jacobian(x), att.jacobian(x, w, v), rtol=1e-12, atol=1e-12)


def test_outputs_are_torch_s_attention():
    query, key, value = (random(2, 3, 4, seed=s) for s in (7, 8, 9))  # heads, k, d
    x = random(4, 5, seed=10)
    layer = Heads(key.mT @ query / 3**0.5, value.mT)
    inputs = (x.mT @ m.mT for m in (query, key, value))
    wanted = nn.functional.scaled_dot_product_attention(*inputs).transpose(0, 1).flatten(1)
    assert_close(layer.outputs(x), wanted, rtol=1e-12, atol=1e-12)


def test_mistakes_are_named():
    square = torch.zeros(1, 3, 3)
    with refusal("W: expected"):
        Heads(torch.zeros(2, 3), square)
    with refusal("V: expected"):
        Heads(square, torch.zeros(2, 3, 3))
    with refusal("X: expected"):
        Heads(square, square).outputs(torch.zeros(2, 3))
