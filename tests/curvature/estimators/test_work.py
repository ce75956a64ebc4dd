"""What every estimator shares: budget, progress, Ctrl-C, and a random stream of its own."""

import io
import math
import sys
import time

import pytest
import torch

import runner.curvature as rc
from runner.curvature.estimators.work import Budget, interactive
from tests.draws import seeded
from tests.errors import refusal

SIZE = 400
VALUES = torch.linspace(0, 1, SIZE, dtype=torch.float64) ** 3


class Counted:
    """A diagonal matrix that counts its columns, and may wait or be interrupted."""

    dtype, device = torch.float64, torch.device("cpu")

    def __init__(self, stop=math.inf, seconds=0.0):
        self.shape, self.sizes = (SIZE, SIZE), {"a": 150, "b": 250}
        self.groups = {"a": slice(0, 150), "b": slice(150, SIZE)}
        self.count, self.stop, self.seconds = 0, stop, seconds

    def __matmul__(self, v):
        self.count += v.shape[1] if v.dim() == 2 else 1
        if self.count > self.stop:
            raise KeyboardInterrupt
        time.sleep(self.seconds)
        return VALUES[:, None] * v if v.dim() == 2 else VALUES * v


ESTIMATORS = {
    "trace": lambda h, **more: rc.trace_estimate(h, 100, **more),
    "bound": lambda h, **more: rc.upper_bound_estimate(h, 100, **more),
    "diagonal": lambda h, **more: rc.diagonal_estimate(h, 100, **more),
    "density": lambda h, **more: rc.spectral_density(h, 3, 60, **more),
    "eigenpairs": lambda h, **more: rc.top_eigenpairs(h, 6, **more),
    "coupling": lambda h, **more: rc.discarded_coupling(h, 60, **more),
}
EACH = pytest.mark.parametrize("estimate", ESTIMATORS.values(), ids=ESTIMATORS)


@EACH
def test_no_more_products_than_columns_and_as_many_as_are_stated(estimate):
    operator = Counted()
    found = estimate(operator)
    assert found.products == operator.count <= SIZE


@EACH
def test_a_budget_of_products_is_kept(estimate):
    operator = Counted()
    found = estimate(operator, budget=50)
    assert operator.count <= 50 and found.products == operator.count
    assert not found.reason
    none = estimate(Counted(), budget=1)
    assert "budget" in none.reason and bool(torch.as_tensor(none.value).isnan().all())


@EACH
def test_a_budget_of_time_is_kept(estimate):
    began = time.monotonic()
    found = estimate(Counted(seconds=0.02), budget="0.3 s")
    assert time.monotonic() - began < 1.5 and found.products < SIZE


@EACH
def test_ctrl_c_carries_the_result_so_far(estimate):
    with pytest.raises(KeyboardInterrupt) as stopped:
        estimate(Counted(stop=60))
    partial = stopped.value.partial
    assert partial.products > 0 and type(partial) is type(estimate(Counted()))


@EACH
def test_the_random_state_of_torch_is_left_alone_and_calls_repeat(estimate):
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first, second = estimate(Counted()), estimate(Counted())
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(torch.as_tensor(first.value), torch.as_tensor(second.value))
    other = estimate(Counted(), generator=seeded(7))
    assert other.products > 0


@EACH
def test_a_bar_is_shown_where_it_is_asked_for_and_by_default_only_to_somebody(
    estimate, monkeypatch
):
    shown = io.StringIO()
    monkeypatch.setattr(sys, "stderr", shown)
    estimate(Counted())
    assert shown.getvalue() == "" and not interactive()  # neither a terminal nor a notebook
    estimate(Counted(), progress=True)
    assert "products" in shown.getvalue()


def test_a_numerical_check_shows_its_gradients_where_it_is_asked_for(monkeypatch):
    net, data = (
        torch.nn.Linear(3, 2).double(),
        (torch.ones(4, 3).double(), torch.zeros(4, 2).double()),
    )
    operator, shown = rc.ParameterOperator(net, torch.nn.MSELoss(), data), io.StringIO()
    monkeypatch.setattr(sys, "stderr", shown)
    assert rc.verify(operator).ok and shown.getvalue() == ""
    assert rc.verify(operator, progress=True).ok
    assert "numerical check" in shown.getvalue() and "gradients" in shown.getvalue()


def test_a_bar_appears_after_two_seconds_in_a_terminal(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    quick, slow = Terminal(), Terminal()
    monkeypatch.setattr("runner.curvature.estimators.work.DELAY", 0.3)
    monkeypatch.setattr(sys, "stderr", quick)
    rc.trace_estimate(Counted(), 100)
    monkeypatch.setattr(sys, "stderr", slow)
    rc.trace_estimate(Counted(seconds=0.06), 100)
    assert quick.getvalue() == "" and "trace" in slow.getvalue()
    monkeypatch.setenv("TQDM_DISABLE", "1")
    assert not interactive()


def test_a_budget_is_a_number_of_products_or_a_time():
    assert Budget.of(30) == Budget(products=30) and Budget.of(None) == Budget()
    assert Budget.of("30 s") == Budget(seconds=30) and Budget.of("1.5min") == Budget(seconds=90)
    for wrong in (0, -1, 2.5, True, "soon", "30", ""):
        with refusal("a number of products"):
            Budget.of(wrong)
