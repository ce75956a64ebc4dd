"""Operators handed to scipy, curvlinops and hessian-eigenthings, and theirs to the estimators."""

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse
import torch
from scipy.sparse.linalg import aslinearoperator, cg
from torch import nn
from torch.nn.utils import parameters_to_vector

import runner.curvature as rc
from tests.curvature.cases import node_operator
from tests.draws import tanh_net
from tests.errors import refusal

PARTS = {
    "hessian": "HessianLinearOperator",
    "gauss_newton": "GGNLinearOperator",
}


@pytest.fixture
def curvlinops():
    return pytest.importorskip("curvlinops")


def network(dtype=torch.float64):
    torch.manual_seed(0)
    net = tanh_net(8, 6, 3).to(dtype)
    return net, nn.CrossEntropyLoss(), (torch.randn(32, 8, dtype=dtype), torch.randint(3, (32,)))


def close(*values, rtol=1e-8, atol=1e-10):
    found, expected = (torch.as_tensor(value, dtype=torch.float64) for value in values)
    return torch.allclose(found, expected, rtol=rtol, atol=atol)


MATRIX = torch.diag(torch.linspace(-1, 3, 80, dtype=torch.float64))


class Product:
    shape = (80, 80)

    def __matmul__(self, v):
        return MATRIX @ v


FORMS = {
    "array": MATRIX.numpy(),
    "sparse": scipy.sparse.csr_matrix(MATRIX.numpy()),
    "scipy": aslinearoperator(MATRIX.numpy()),
    "size and matvec": SimpleNamespace(size=80, matvec=MATRIX.__matmul__),
    "shape and @": Product(),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_estimators_take_whatever_multiplies(form):
    found, expected = rc.top_eigenpairs(FORMS[form], 2), rc.top_eigenpairs(MATRIX, 2)
    assert close(found.values, expected.values, atol=1e-9)
    assert close(rc.trace_estimate(FORMS[form], 80).value, MATRIX.trace(), atol=1e-9)


@pytest.mark.parametrize("part", PARTS)
def test_operators_of_curvlinops_give_the_numbers_of_ours(curvlinops, part):
    net, loss, batch = network()
    parameters = list(net.parameters())
    ours = rc.ParameterOperator(net, loss, batch, part=part)
    theirs = getattr(curvlinops, PARTS[part])(net, loss, parameters, [batch])
    for estimate, cost in (
        (rc.top_eigenpairs, 3),
        (rc.trace_estimate, 30),
        (rc.upper_bound_estimate, 10),
        (rc.spectral_density, 3),
    ):
        assert close(estimate(theirs, cost).value, estimate(ours, cost).value)
    with refusal("expected a symmetric operator"):
        rc.trace_estimate(curvlinops.JacobianLinearOperator(net, parameters, [batch]))


NEAR = [
    (torch.float32, {"rtol": 1e-4, "atol": 1e-6}),
    (torch.float64, {"rtol": 1e-10, "atol": 1e-12}),
]


@pytest.mark.parametrize("dtype, near", NEAR)
def test_curvlinops_takes_ours(curvlinops, dtype, near):
    net, loss, batch = network(dtype)
    between = node_operator(rc.Dag.from_sequential(net), *batch)
    products = rc.as_curvlinops(between) @ torch.ones(between.shape[0], dtype=dtype)
    assert close(products, between.dense().sum(1), atol=1e-6)
    ours = rc.ParameterOperator(net, loss, batch, part="gauss_newton")
    view, dense = rc.as_curvlinops(ours), ours.dense()
    ones, row_sums = torch.ones(len(dense), dtype=dtype), dense.sum(1)
    assert view.dtype == dtype and torch.equal(view @ torch.eye(len(dense), dtype=dtype), dense)
    direction = [torch.randn_like(p) for p in net.parameters()]
    flat = parameters_to_vector(direction)
    assert close(parameters_to_vector(view @ direction), dense @ flat, **near)
    theirs = curvlinops.GGNLinearOperator(net, loss, list(net.parameters()), [batch])
    assert close((2 * view - theirs) @ ones, row_sums, **near)
    assert close(view.to_scipy() @ ones.numpy(), row_sums, **near)


def test_conjugate_gradients_and_kfac_solve_with_ours(curvlinops):
    from curvlinops.examples import IdentityLinearOperator

    net, loss, batch = network()
    parameters = list(net.parameters())
    ours = rc.ParameterOperator(net, loss, batch, part="gauss_newton")
    gradient, damping, eye = ours.gradient(), 1e-3, torch.eye(ours.shape[0]).double()
    damped = ours.dense() + damping * eye
    identity = IdentityLinearOperator([p.shape for p in parameters], ours.device, ours.dtype)
    theirs = rc.as_curvlinops(ours) + damping * identity
    step = curvlinops.CGInverseLinearOperator(theirs, tolerance=1e-6) @ gradient
    assert float((damped @ step - gradient).norm()) < 1e-4 * float(gradient.norm())
    exact = curvlinops.FisherType.TYPE2
    kfac = curvlinops.KFACLinearOperator(net, loss, parameters, [batch], fisher_type=exact)
    inverse = curvlinops.KFACInverseLinearOperator(kfac, damping=damping).to_scipy(np.float64)
    system = rc.as_linear_operator(ours) + damping * rc.as_linear_operator(eye)
    found, status = cg(system, gradient.numpy(), rtol=1e-8, M=inverse)
    assert status == 0 and close(found, torch.linalg.solve(damped, gradient), rtol=1e-5, atol=1e-7)


def test_hessian_eigenthings_takes_ours_and_its_operators_are_taken():
    eigenthings = pytest.importorskip("hessian_eigenthings", minversion="1.0.0a1")
    net, loss, batch = network()
    ours = rc.ParameterOperator(net, loss, batch)
    theirs = eigenthings.HessianOperator(net, [batch], eigenthings.supervised_loss(loss))
    assert close(rc.top_eigenpairs(theirs, 3).values, rc.top_eigenpairs(ours, 3).values)
    wrapped = eigenthings.LambdaOperator(ours.matvec, ours.shape[0], dtype=ours.dtype)
    found = eigenthings.lanczos(wrapped, k=1, max_iter=60).eigenvalues
    assert close(found, rc.top_eigenpairs(ours, 1, "magnitude").values, rtol=1e-3)


def test_the_example_of_the_guide_solves_its_system(curvlinops):
    docs = Path(__file__).parents[2] / "docs"
    pages = {"python": "own-network.md", "py": "other-libraries.md"}
    setting, example = (
        re.search(rf"```{mark}\n(.*?)```", (docs / page).read_text(), re.S)[1]
        for mark, page in pages.items()
    )
    names = {"__name__": "guide"}
    exec(f"{setting}\n{example}", names)
    newton, step = names["newton"], names["step"]
    residual = newton @ step + 1e-3 * step - newton.gradient()
    assert float(residual.norm()) < 1e-4 * float(newton.gradient().norm())
