"""What every estimator shares: budget, progress, Ctrl-C, and a random stream of its own."""

import io
import math
import sys
import time

import pytest
import torch

import runner.curvature as rc
from runner.curvature.estimators import examples
from runner.curvature.estimators.ratios import InterLayerMetrics
from runner.curvature.estimators.work import Budget, interactive
from tests.draws import seeded
from tests.errors import refusal

SIZE = 400
VALUES = torch.linspace(0, 1, SIZE, dtype=torch.float64) ** 3


class Counted:
    """A diagonal matrix that counts its columns, and may wait or be interrupted."""

    dtype, device = torch.float64, torch.device("cpu")
    columns, few, enough = SIZE, 50, 60

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


class ThreeBatches(Counted):
    """An operator that is asked for each of three batches."""

    columns, few, enough = 3 * SIZE, 300, 280


class OwnLoss(torch.nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x, y):
        return torch.nn.functional.mse_loss(self.net(x), y)


class Network(rc.ParameterOperator):
    """A network of two layers that counts its products, those of its Gauss-Newton matrix too."""

    columns, few, enough = 2 * 142, 50, 100

    def __init__(self, stop=math.inf, seconds=0.0, own_loss=False):
        torch.manual_seed(0)
        layers = [torch.nn.Linear(4, 20), torch.nn.Tanh(), torch.nn.Linear(20, 2)]
        data = torch.randn(5, 4).double(), torch.randn(5, 2).double()
        net = torch.nn.Sequential(*layers).double()
        if own_loss:
            super().__init__(OwnLoss(net), None, (data, None))
        else:
            super().__init__(net, torch.nn.MSELoss(), data)
        self.counter = Counted(stop, seconds)

    @property
    def count(self):
        return self.counter.count

    def apply(self, directions):
        rows = next(iter(directions.values()))
        self.counter @ torch.zeros(SIZE, len(rows), dtype=torch.float64)
        return super().apply(directions)


def by_probes(operator, **more):
    operator.settings = operator.settings._replace(memory_budget=1)
    return rc.inter_layer_metrics(operator, relative_error=0.3, **more)


def over_batches(operator, **more):
    return rc.batch_errors([operator] * 3, **more)


def from_sketches(operator, **more):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(examples, "WHOLE", 1)
        return over_batches(operator, **more)


ESTIMATORS = {
    "trace": (lambda h, **more: rc.trace_estimate(h, 100, **more), Counted),
    "bound": (lambda h, **more: rc.upper_bound_estimate(h, 100, **more), Counted),
    "diagonal": (lambda h, **more: rc.diagonal_estimate(h, 100, **more), Counted),
    "density": (lambda h, **more: rc.spectral_density(h, 3, 60, **more), Counted),
    "eigenpairs": (lambda h, **more: rc.top_eigenpairs(h, 6, **more), Counted),
    "coupling": (lambda h, **more: rc.discarded_coupling(h, 60, **more), Counted),
    "metrics": (rc.inter_layer_metrics, Network),
    "metrics by probes": (by_probes, Network),
    "batches": (over_batches, ThreeBatches),
    "batches, sketched": (from_sketches, ThreeBatches),
}
EACH = pytest.mark.parametrize("estimate, operator", ESTIMATORS.values(), ids=ESTIMATORS)


def rows_of(found):
    """The results that have a value."""
    if isinstance(found, InterLayerMetrics):
        return [row.R for row in found.values()]
    return list(found.values()) if isinstance(found, dict) else [found]


def values_of(found):
    values = [torch.as_tensor(row.value).double().flatten() for row in rows_of(found)]
    return torch.cat(values).nan_to_num(-1.0)


def reasons_of(found):
    return [row.reason for row in rows_of(found)]


@EACH
def test_no_more_products_than_columns_and_as_many_as_are_stated(estimate, operator):
    measured = operator()
    found = estimate(measured)
    assert 0 < measured.count <= measured.columns and not any(reasons_of(found))
    if operator is Counted:
        assert found.products == measured.count


@EACH
def test_a_budget_of_products_is_kept(estimate, operator):
    measured = operator()
    found = estimate(measured, budget=operator.few)
    assert 0 < measured.count <= operator.few
    assert not all(reasons_of(found))
    if operator is Counted:
        assert found.products == measured.count
    none = estimate(operator(), budget=1)
    assert all("budget" in reason for reason in reasons_of(none))
    assert bool((values_of(none) == -1).all())


@EACH
def test_a_budget_of_time_is_kept(estimate, operator):
    measured = operator(seconds=0.02)
    began = time.monotonic()
    estimate(measured, budget="0.3 s")
    assert time.monotonic() - began < 1.5 and 0 < measured.count < measured.columns + 1


@EACH
def test_ctrl_c_carries_the_result_so_far(estimate, operator):
    with pytest.raises(KeyboardInterrupt) as stopped:
        estimate(operator(stop=operator.enough))
    partial = stopped.value.partial
    whole = estimate(operator())
    assert type(partial) is type(whole) and len(rows_of(partial)) == len(rows_of(whole))
    exact = estimate in (rc.inter_layer_metrics, over_batches)
    assert exact or not all(reasons_of(partial))  # of half a matrix nothing is known
    if operator is Counted:
        assert partial.products > 0


@pytest.mark.parametrize("way", [by_probes, rc.inter_layer_metrics])
def test_without_a_gauss_newton_matrix_there_is_no_gap(way):
    found = way(Network(own_loss=True))
    with pytest.raises(KeyboardInterrupt) as stopped:
        way(Network(stop=60, own_loss=True))
    partial = stopped.value.partial
    assert not any(reasons_of(found)) and found.keys() == partial.keys()
    for row in [*found.values(), *partial.values()]:
        assert math.isnan(row.gap.value) and row.gap.reason


@EACH
def test_the_random_state_of_torch_is_left_alone_and_calls_repeat(estimate, operator):
    measured = [operator() for _ in range(3)]
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first, second = estimate(measured[0]), estimate(measured[1])
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(values_of(first), values_of(second))
    assert not any(reasons_of(estimate(measured[2], generator=seeded(7))))


@EACH
def test_a_bar_is_shown_where_it_is_asked_for_and_by_default_only_to_somebody(
    estimate, operator, monkeypatch
):
    shown = io.StringIO()
    monkeypatch.setattr(sys, "stderr", shown)
    estimate(operator())
    assert shown.getvalue() == "" and not interactive()  # neither a terminal nor a notebook
    estimate(operator(), progress=True)
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
