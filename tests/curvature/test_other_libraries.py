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

import runner.curvature as rc
from tests.draws import seeded, tanh_net
from tests.errors import refusal

PARTS = {
    "hessian": "HessianLinearOperator",
    "gauss_newton": "GGNLinearOperator",
    "empirical_fisher": "EFLinearOperator",
}


@pytest.fixture
def curvlinops():
    return pytest.importorskip("curvlinops")


def network(dtype=torch.float64):
    torch.manual_seed(0)
    net = tanh_net(8, 6, 3).to(dtype)
    return net, nn.CrossEntropyLoss(), (torch.randn(32, 8, dtype=dtype), torch.randint(3, (32,)))


@pytest.mark.parametrize("form", ["array", "sparse", "scipy", "size and matvec", "shape and @"])
def test_the_estimators_take_whatever_multiplies(form):
    matrix = torch.diag(torch.linspace(-1, 3, 80, dtype=torch.float64))

    class Product:
        shape = (80, 80)

        def __matmul__(self, v):
            return matrix @ v

    forms = {
        "array": matrix.numpy(),
        "sparse": scipy.sparse.csr_matrix(matrix.numpy()),
        "scipy": aslinearoperator(matrix.numpy()),
        "size and matvec": SimpleNamespace(size=80, matvec=lambda v: matrix @ v),
        "shape and @": Product(),
    }
    for estimate in (
        lambda a: rc.top_eigenpairs(a, 2, generator=seeded()).values,
        lambda a: rc.trace_estimate(a, 80).value,
    ):
        assert torch.allclose(
            torch.as_tensor(estimate(forms[form])), torch.as_tensor(estimate(matrix)), atol=1e-9
        )


@pytest.mark.parametrize("part", PARTS)
def test_operators_of_curvlinops_give_the_numbers_of_ours(curvlinops, part):
    net, loss, batch = network()
    ours = rc.ParameterOperator(net, loss, batch, part=part)
    theirs = getattr(curvlinops, PARTS[part])(net, loss, list(net.parameters()), [batch])
    for estimate in (
        lambda a: rc.top_eigenpairs(a, 3, generator=seeded()).value,
        lambda a: rc.trace_estimate(a, 30, generator=seeded()).value,
        lambda a: rc.upper_bound_estimate(a, 10, generator=seeded()).value,
        lambda a: rc.spectral_density(a, 3, 20, generator=seeded()).value,
    ):
        assert torch.allclose(
            torch.as_tensor(estimate(theirs)),
            torch.as_tensor(estimate(ours)),
            rtol=1e-8,
            atol=1e-10,
        )
    jacobian = curvlinops.JacobianLinearOperator(net, list(net.parameters()), [batch])
    with refusal("expected a symmetric operator"):
        rc.trace_estimate(jacobian)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_curvlinops_takes_ours(curvlinops, dtype):
    net, loss, batch = network(dtype)
    between = rc.CurvatureOperator(rc.Dag.from_sequential(net), *batch)
    products = rc.as_curvlinops(between) @ torch.ones(between.shape[0], dtype=dtype)
    assert torch.allclose(products, between.dense().sum(1), atol=1e-6)
    ours = rc.ParameterOperator(net, loss, batch, part="gauss_newton")
    view, dense = rc.as_curvlinops(ours), ours.dense()
    close = (
        {"rtol": 1e-10, "atol": 1e-12} if dtype == torch.float64 else {"rtol": 1e-4, "atol": 1e-6}
    )
    assert view.dtype == dtype and torch.equal(view @ torch.eye(len(dense), dtype=dtype), dense)
    direction = [torch.randn_like(p) for p in net.parameters()]
    flat = torch.cat([t.flatten() for t in view @ direction])
    assert torch.allclose(flat, dense @ torch.cat([t.flatten() for t in direction]), **close)
    theirs = curvlinops.GGNLinearOperator(net, loss, list(net.parameters()), [batch])
    assert torch.allclose(
        (2 * view - theirs) @ direction[0].new_ones(len(dense)), dense.sum(1), **close
    )
    assert np.allclose(view.to_scipy() @ np.ones(len(dense)), dense.sum(1).numpy(), **close)


def test_conjugate_gradients_and_kfac_solve_with_ours(curvlinops):
    from curvlinops.examples import IdentityLinearOperator

    net, loss, batch = network()
    parameters = list(net.parameters())
    ours = rc.ParameterOperator(net, loss, batch, part="gauss_newton")
    gradient, damping = ours.gradient(), 1e-3
    damped = ours.dense() + damping * torch.eye(ours.shape[0], dtype=torch.float64)
    expected = torch.linalg.solve(damped, gradient)
    identity = IdentityLinearOperator([p.shape for p in parameters], ours.device, ours.dtype)
    inverse = curvlinops.CGInverseLinearOperator(
        rc.as_curvlinops(ours) + damping * identity, tolerance=1e-6
    )
    assert float((damped @ (inverse @ gradient) - gradient).norm()) < 1e-4 * float(gradient.norm())
    kfac = curvlinops.KFACLinearOperator(
        net, loss, parameters, [batch], fisher_type=curvlinops.FisherType.TYPE2
    )
    preconditioner = curvlinops.KFACInverseLinearOperator(kfac, damping=damping).to_scipy(
        np.float64
    )
    system = rc.as_linear_operator(ours) + damping * rc.as_linear_operator(torch.eye(ours.shape[0]))
    found, status = cg(system, gradient.numpy(), rtol=1e-8, M=preconditioner)
    assert status == 0 and np.allclose(found, expected.numpy(), rtol=1e-5, atol=1e-7)


def test_hessian_eigenthings_takes_ours_and_its_operators_are_taken():
    eigenthings = pytest.importorskip("hessian_eigenthings", minversion="1.0.0a1")
    net, loss, batch = network()
    ours = rc.ParameterOperator(net, loss, batch)
    theirs = eigenthings.HessianOperator(net, [batch], eigenthings.supervised_loss(loss))
    assert torch.allclose(
        rc.top_eigenpairs(theirs, 3).values, rc.top_eigenpairs(ours, 3).values, atol=1e-10
    )
    wrapped = eigenthings.LambdaOperator(ours.matvec, ours.shape[0], dtype=ours.dtype)
    assert float(eigenthings.lanczos(wrapped, k=1, max_iter=60).eigenvalues[0]) == pytest.approx(
        float(rc.top_eigenpairs(ours, 1, "magnitude").values[0]), rel=1e-3
    )


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
