"""What every curvature operator is tested for. An operator states how it is built and its dense
truth:

    class TestMine(OperatorContract):
        def build(self, dtype=torch.float64, scale=1.0, budget=None, poison=False): ...
        def dense(self): ...

and inherits: dense truth, adjoint, dtypes, devices, scales of the loss, chunks, gradient mode,
counts of products, refusals, and NaN with a reason."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import pytest
import torch
from torch import Tensor

import runner.curvature as rc
from runner.curvature.spectra.bounds import wolkowicz_styan_upper
from tests.draws import normal, seeded
from tests.errors import refusal

DTYPES = {torch.float64: 1e-10, torch.float32: 1e-4}


class OperatorContract(ABC):
    """Laws of a symmetric operator with named blocks (SymmetricOperator)."""

    scales: tuple[float, ...] = (1e-20, 1e20)
    dtypes: tuple[torch.dtype, ...] = tuple(DTYPES)
    shifts: Tensor | None = None
    """A direction of the last node that shifts all logits of a cross-entropy alike; None: ones."""

    @abstractmethod
    def build(
        self,
        dtype: torch.dtype = torch.float64,
        scale: float = 1.0,
        budget: int | None = None,
        poison: bool = False,
    ) -> Any:
        """The operator, its loss times `scale`; budget: memory_budget; poison: one value of the
        data is NaN."""

    @abstractmethod
    def dense(self) -> Tensor:
        """The matrix over the operator's nodes, float64, by other means, for scale 1."""

    # ------------------------------------------------------------------ helpers

    def truth(self) -> Tensor:
        """`dense`, computed once for each class."""
        if "known_truth" not in vars(type(self)):
            type(self).known_truth = self.dense()
        return type(self).known_truth

    @staticmethod
    def pieces(operator: Any, rows: Tensor) -> dict[str, Tensor]:
        """Rows over all nodes as directions."""
        columns = rows.to(operator.dtype).split([operator.sizes[v] for v in operator.nodes], 1)
        return dict(zip(operator.nodes, columns, strict=True))

    def directions(self, operator: Any, count: int = 3, seed: int = 0) -> dict[str, Tensor]:
        n = sum(operator.sizes.values())
        return self.pieces(operator, torch.randn(count, n, generator=seeded(seed)))

    @staticmethod
    def stacked(operator: Any, products: dict[str, Tensor]) -> Tensor:
        return torch.cat([products[v] for v in operator.nodes], 1).double()

    def image(self, operator: Any, directions: dict[str, Tensor]) -> Tensor:
        return self.stacked(operator, operator.apply(directions))

    def matrix(self, operator: Any) -> Tensor:
        """All columns by `apply` alone."""
        eye = torch.eye(sum(operator.sizes.values()))
        return self.image(operator, self.pieces(operator, eye)).mT

    @staticmethod
    def error(found: Tensor, expected: Tensor) -> float:
        return float((found - expected).abs().max() / expected.abs().max())

    # ------------------------------------------------------------------ laws

    def test_it_is_the_dense_truth_in_every_dtype(self):
        for dtype in self.dtypes:
            operator = self.build(dtype)
            assert operator.dtype == dtype
            assert self.error(self.matrix(operator), self.truth()) < DTYPES[dtype]

    def test_rows_of_the_last_node_add_up_to_zero(self):
        """A shift of all logits by one number changes no probability."""
        operator = self.build()
        last = operator.nodes[-1]
        ones = torch.ones(operator.sizes[last]) if self.shifts is None else self.shifts
        images = self.image(operator, {last: ones.to(operator.dtype).unsqueeze(0)})
        assert float(images.abs().max()) < 1e-12 * float(self.truth().abs().max())

    def test_absent_nodes_are_zero_directions(self):
        operator, truth = self.build(), self.truth()
        w = operator.nodes[0]
        r = self.directions(operator)
        zero = {v: torch.zeros_like(d) for v, d in r.items()}
        expected = r[w] @ truth[: operator.sizes[w]]
        for given in ({w: r[w]}, zero | {w: r[w]}):
            assert self.error(self.image(operator, given), expected) < 1e-10
        assert not self.image(operator, zero).any()

    def test_chunks_do_not_change_it(self):
        whole, cut = self.build(), self.build(budget=1)
        r = self.directions(whole, 5)
        assert self.error(self.image(cut, r), self.image(whole, r)) < 1e-12

    def test_products_are_counted_and_do_not_depend_on_earlier_ones_or_on_the_gradient_mode(self):
        operator = self.build()
        r, before = self.directions(operator), operator.products
        first = self.image(operator, r)
        operator.apply(self.directions(operator, 7, 3))
        assert operator.products == before + 10
        for mode in (torch.no_grad, torch.inference_mode):
            with mode():
                assert torch.equal(self.image(operator, r), first)
        with torch.no_grad():
            assert torch.equal(self.image(self.build(), r), first)

    def test_it_scales_with_the_loss(self):
        for dtype in self.dtypes:
            for scale in self.scales:
                operator = self.build(dtype, scale)
                assert self.error(self.matrix(operator) / scale, self.truth()) < DTYPES[dtype]

    def test_its_device_is_that_of_the_network(self):
        """Whatever the default device is: one without values stands for another."""
        operator = self.build()
        r = self.directions(operator)
        products = operator.apply(r)
        with torch.device("meta"):
            inside = operator.apply(r)
        for v, product in inside.items():
            assert product.device == operator.device and torch.equal(product, products[v])

    def test_mistakes_are_refused(self):
        operator = self.build()
        v = operator.nodes[0]
        wrong = torch.ones(2, operator.sizes[v] + 1, dtype=operator.dtype)
        for directions in ({v: wrong}, {"nowhere": wrong}, {}):
            with refusal("expected directions"):
                operator.apply(directions)

    def test_what_is_not_finite_is_nan_with_a_reason(self):
        operator = self.build(poison=True)
        estimate = rc.trace_estimate(operator, 4)
        assert math.isnan(estimate.value) and math.isnan(estimate.error) and estimate.reason


class BlockContract(OperatorContract):
    """Laws of an operator that also gives its blocks, `matvec` and `dense`."""

    def test_blocks_and_adjoints(self):
        operator, truth = self.build(), self.truth()
        v, w = operator.nodes[0], operator.nodes[-1]
        block = operator.block(v, w)
        rows, columns = operator.sizes[v], operator.sizes[w]
        expected = truth[:rows, -columns:]
        scale = float(truth.abs().max())
        assert block.shape == (rows, columns) and block.adjoint.shape == (columns, rows)
        assert float((block.dense() - expected).abs().max()) < 1e-10 * scale
        assert float((block.adjoint.dense() - expected.mT).abs().max()) < 1e-10 * scale
        z = normal(columns, 2, generator=seeded())
        assert torch.allclose(block.matvec(z)[:, 1], block.matvec(z[:, 1]), atol=1e-12 * scale)
        with refusal("not one of"):
            operator.block(v, "nowhere")

    def test_flat_vectors(self):
        operator, truth = self.build(), self.truth()
        assert operator.shape == tuple(truth.shape)
        assert self.error(operator.dense(), truth) < 1e-10
        z = normal(len(truth), generator=seeded())
        assert self.error(operator.matvec(z), truth @ z) < 1e-10


class EstimatorContract(BlockContract):
    """Estimators, which take an operator by its products alone, agree with its truth on every
    default device."""

    def test_estimates_agree_with_the_truth(self):
        truth = self.truth()
        values = torch.linalg.eigvalsh(truth)
        size, sums = len(values), (values.sum(), values.square().sum())
        for dtype in self.dtypes:
            operator, close = self.build(dtype), {"rel": DTYPES[dtype], "abs": DTYPES[dtype]}
            for which, value in (("largest", values[-1]), ("smallest", values[0])):
                end = rc.top_eigenpairs(operator, 1, which)
                rounding = 100 * DTYPES[dtype] * float(values.abs().max())
                assert abs(end.value - value) <= end.error + rounding and bool(end.converged.all())
            trace = rc.trace_estimate(operator, 200)
            assert (trace.method, trace.error) == ("exact", 0.0)
            assert trace.value == pytest.approx(float(sums[0]), **close)
            bound = rc.upper_bound_estimate(operator, 200)
            expected = float(wolkowicz_styan_upper(size, *sums))
            assert bound.low == bound.value == bound.high == pytest.approx(expected, **close)
            density = rc.spectral_density(operator, 3, 30)
            area = torch.trapezoid(density.density, density.grid)
            assert float(area) == pytest.approx(1, abs=0.01)

    def test_estimates_do_not_depend_on_the_default_device(self):
        operator = self.build()

        def estimates():
            return [
                rc.top_eigenpairs(operator, 2).values.tolist(),
                rc.trace_estimate(operator, 12).value,
                rc.spectral_density(operator, 2, 5).density.tolist(),
                rc.upper_bound_estimate(operator, 4).value,
            ]

        expected = estimates()
        with torch.device("meta"):
            again, certificate = estimates(), rc.verify(operator, generator=seeded())
        assert again == expected and certificate.ok
