"""What every estimator shares: progress, Ctrl-C, and a random stream of its own."""

import io
import math
import sys
import time
from functools import partial

import pytest
import torch
from torch import nn

import runner.curvature as rc
from runner.curvature.basics.work import interactive
from runner.curvature.pairs.ratios import InterLayerMetrics
from runner.curvature.uses import batch_errors as examples
from tests.curvature.cases import Own
from tests.curvature.matrices import Grouped, spectrum
from tests.draws import normal, seeded, tanh_net
from tests.errors import refusal

SIZE = 400


class Counted(Grouped):
    """A diagonal matrix that counts its columns, and may wait or be interrupted."""

    columns, enough = SIZE, 60

    def __init__(self, stop=math.inf, seconds=0.0):
        super().__init__(torch.diag(spectrum(0, 1, SIZE) ** 3), a=slice(150), b=slice(150, SIZE))
        self.count, self.stop, self.seconds = 0, stop, seconds

    def __matmul__(self, v):
        self.count += v[0].numel()
        if self.count > self.stop:
            raise KeyboardInterrupt
        time.sleep(self.seconds)
        return super().__matmul__(v)


class ThreeBatches(Counted):
    """An operator that is asked for each of three batches."""

    columns, enough = 3 * SIZE, 280


class Network(rc.ParameterOperator):
    """A network of two layers that counts its products, those of its Gauss-Newton matrix too."""

    columns, enough = 2 * 142, 100

    def __init__(self, stop=math.inf, seconds=0.0, own_loss=False):
        torch.manual_seed(0)
        net, data = tanh_net(4, 20, 2).double(), (normal(5, 4), normal(5, 2))
        if own_loss:
            own = Own(lambda m, x, y: nn.functional.mse_loss(m.net(x), y), net=net)
            super().__init__(own, None, (data, None))
        else:
            super().__init__(net, nn.MSELoss(), data)
        self.counter = Counted(stop, seconds)

    @property
    def count(self):
        return self.counter.count

    def apply(self, directions):
        rows = next(iter(directions.values()))
        self.counter @ torch.zeros(SIZE, len(rows)).double()
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
    "trace": (partial(rc.trace_estimate, products=100), Counted),
    "bound": (partial(rc.upper_bound_estimate, probes=100), Counted),
    "density": (partial(rc.spectral_density, probes=3, steps=60), Counted),
    "eigenpairs": (partial(rc.top_eigenpairs, k=6), Counted),
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
    """Of values that are not there; the block between the halves of a diagonal matrix is zero."""
    return [row.reason.replace("a block is zero", "") for row in rows_of(found)]


@EACH
def test_no_more_products_than_columns_and_as_many_as_are_stated(estimate, operator):
    measured = operator()
    found = estimate(measured)
    assert 0 < measured.count <= measured.columns and not any(reasons_of(found))
    if operator is Counted:
        assert found.products == measured.count


@EACH
def test_a_budget_is_refused_with_what_to_do_instead(estimate, operator):
    with refusal("budget= has been removed: .*partial"):
        estimate(operator(), budget=100)


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


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def shown(monkeypatch):
    """What a call writes to standard error."""

    def written(call, *given, stream=io.StringIO, **more):
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stderr", stream())
            call(*given, **more)
            return sys.stderr.getvalue()

    return written


@EACH
def test_a_bar_is_shown_where_it_is_asked_for_and_by_default_only_to_somebody(
    estimate, operator, shown
):
    assert shown(estimate, operator()) == ""
    assert "products" in shown(estimate, operator(), progress=True)


def test_a_numerical_check_shows_its_gradients_where_it_is_asked_for(shown):
    data = torch.ones(4, 3).double(), torch.zeros(4, 2).double()
    operator = rc.ParameterOperator(nn.Linear(3, 2).double(), nn.MSELoss(), data)
    assert shown(rc.verify, operator) == ""
    bar = shown(rc.verify, operator, progress=True)
    assert "numerical check" in bar and "gradients" in bar


def test_a_bar_appears_after_two_seconds_in_a_terminal(monkeypatch, shown):
    monkeypatch.setattr("runner.curvature.basics.work.DELAY", 0.3)
    assert shown(rc.trace_estimate, Counted(), 100, stream=Terminal) == ""
    assert "trace" in shown(rc.trace_estimate, Counted(seconds=0.06), 100, stream=Terminal)


def test_bars_are_for_terminals_and_notebooks(monkeypatch):
    for stream, expected in ((io.StringIO(), False), (Terminal(), True)):
        monkeypatch.setattr(sys, "stderr", stream)
        assert interactive() == expected
    monkeypatch.setenv("TQDM_DISABLE", "1")
    assert not interactive()
