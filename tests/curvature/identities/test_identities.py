"""Functions that are wrong on purpose: each is refused with one line that names the cause, or
measured right."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrize

from runner.curvature import (
    Dag,
    LayerOperator,
    ParameterOperator,
    trace_estimate,
    verify,
)
from runner.curvature.products.of_batch import PARTS
from tests.curvature.cases import Detached, Own, Swish, node_operator, with_backward
from tests.curvature.checks_table import WRONG_SECOND, small
from tests.curvature.oracles import parameter_matrix, relative
from tests.draws import normal, tanh_net
from tests.errors import refusal

CROSS = nn.CrossEntropyLoss()


def mlp():
    torch.manual_seed(0)
    return tanh_net(3, 4, 3).double()


def data(n=6):
    return normal(n, 3), torch.arange(n) % 3


def operator(module, given=None, loss=CROSS, **options):
    return ParameterOperator(module, loss, given or data(), **options)


def assert_dense(found, module, x, y, part="hessian", within=1e-12):
    """An operator, next to the dense matrix of the cross-entropy of a module."""
    expected = parameter_matrix(part, module, CROSS, x, y)
    assert relative(found.dense(), expected) < within


straight = with_backward(torch.sign, lambda g, _: g)
"""The sign, with the derivative of the identity."""


def counting(m, t):
    """Keeps a number from one call to the next."""
    m.calls += 1
    return m.layer(t) * m.calls


def cached(m, t):
    """Computes a weight at its first call and keeps it, with its graph."""
    if m.kept is None:
        m.kept = m.raw.sin()
    return t @ m.kept


def weight():
    return nn.Parameter(torch.randn(3, 3).double())


def between(function):
    parts = {"first": nn.Linear(3, 4), "last": nn.Linear(4, 3)}
    return Own(lambda m, t: m.last(function(m.first(t))), **parts).double()


def half_detached(t):
    return t.sin() * t.detach()


def test_modules_that_are_no_function_of_their_parameters_are_refused():
    with refusal(r"1 \(Dropout\) draws at random in training mode: call .eval\(\)"):
        operator(nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 3)).double())
    with refusal("draws at random"):
        noise = lambda f, y: CROSS(f, y) * (1 + 1e-4 * torch.rand(()))  # noqa: E731
        operator(mlp(), loss=noise)
    with refusal("keeps values from one call to the next"):
        operator(Own(counting, layer=nn.Linear(3, 3), calls=0).double())
    with refusal("'raw' is held outside"):
        operator(Own(cached, raw=weight(), kept=None))
    listed = Own(lambda m, t: t @ m.list[0].sin(), weight=weight())
    listed.list = [listed.weight]
    with refusal("'weight' is held outside"):
        operator(listed)


def test_wrong_derivatives_are_refused_and_named_by_verify():
    for part in PARTS:
        with refusal("the gradient differs .* check='report'"):
            operator(between(straight), part=part)
        with refusal("the gradient differs"):
            operator(between(half_detached), part=part)
    with refusal("an operation has a first derivative and no right second"):
        operator(between(Detached.apply))
    for part in ("hessian", "gauss_newton"):
        with refusal("second derivative"):
            operator(between(Swish.apply), part=part)
    found = verify(operator(between(Detached.apply), check=False))
    assert not found.ok and "group 'first'" in found.reasons[0]


@pytest.mark.parametrize(
    "function, words",
    [
        (lambda w, t: F.embedding_bag(t, w), "uses an operation without a second derivative"),
        (lambda w, t: raising(w).sum(0)[t].sum(1, True), "the second derivative .* no more"),
    ],
)
def test_what_cannot_be_differentiated_twice_is_refused_on_a_few_examples(function, words):
    rows = []
    module = Own(lambda m, t: (rows.append(len(t)), function(m.w, t))[1], w=weight())
    with refusal(words):
        operator(module, (torch.arange(40).view(20, 2) % 3, torch.zeros(20).long()), mean_square)
    assert max(rows) < 20


def mean_square(f, y):
    return f.square().mean()


def no_more(g, t):
    raise RuntimeError("no more")


failing = with_backward(torch.clone, no_more)
raising = with_backward(torch.clone, lambda g, t: failing(g))
"""Its gradient is right and cannot be differentiated."""


def test_a_report_warns_keeps_the_text_and_gives_the_number():
    module, given = between(half_detached), data()
    with pytest.warns(RuntimeWarning, match="the gradient differs"):
        found = operator(module, given, check="report")
    assert found.failures and "FAILED" in repr(found)
    assert_dense(found, module, *given)
    with refusal("expected check as True, 'report' or False, found 'no'"):
        operator(module, check="no")
    assert operator(module, check=False).checks == {}


@refusal("has hooks that change gradients")
def test_hooks_of_weights_that_change_gradients_are_named():
    module = mlp()
    module[0].weight.register_hook(lambda g: g.clamp(-1e-3, 1e-3))
    operator(module)


@refusal("has hooks that change gradients")
def test_hooks_of_modules_that_change_gradients_are_named():
    module = nn.Sequential(nn.Linear(3, 3).double(), mlp())
    module[1].register_full_backward_hook(lambda m, i, o: tuple(2 * g for g in i))
    operator(module)


# ------------------------------------------------------------------ right where guesses were wrong


@pytest.mark.parametrize("part", ["hessian", "gauss_newton"])
def test_a_parametrization_that_is_cached_is_no_constant(part):
    module, given = mlp(), data()
    parametrize.register_parametrization(module[0], "weight", Own(lambda _, t: t * t.abs()))
    expected = parameter_matrix(part, module, CROSS, *given)
    with parametrize.cached():
        module(given[0])
        assert relative(operator(module, given, part=part).dense(), expected) < 1e-12


@pytest.mark.parametrize("budget", [1 << 30, 1000])
@pytest.mark.parametrize("kind", ["a number in an object", "data", "a mode", "a layer", "a hook"])
def test_changes_after_building_are_noticed(kind, budget):
    module, (x, y) = nn.Sequential(mlp(), nn.Dropout(0.3)).eval(), data()
    settings = {"penalty": 1.0}

    def loss(f, t):
        return F.cross_entropy(f, t) + settings["penalty"] * f.square().mean()

    found = operator(module, (x, y), loss, memory_budget=budget)
    found.refuse_changes()
    v = torch.ones(found.shape[0]).double()
    found @ v
    calls = [found.refuse_changes, lambda: trace_estimate(found)]
    if kind == "a number in an object":
        settings["penalty"] = 2.0
    else:  # which costs no evaluation of the loss
        calls += [lambda: found @ v, found.gradient]
    if kind == "data":
        x.mul_(1.5)
    if kind == "a mode":
        module.train()
    if kind == "a layer":
        module[0][1] = nn.ReLU()
    if kind == "a hook":
        module[0].register_forward_hook(lambda m, i, o: 2 * o)
    for call in calls:
        with refusal("the loss has changed since this operator was built"):
            call()


def with_norm():
    parts = nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 3)
    return nn.Sequential(*parts).double()


@pytest.mark.filterwarnings("ignore:memory_budget is")
@pytest.mark.parametrize("budget", [1 << 30, 64 << 10, 1])
def test_whether_a_network_is_accepted_does_not_depend_on_the_budget(budget):
    """One batch of which parts do not add up to it is not cut; several need a weight each."""
    module, (x, y) = with_norm(), data(64)
    found = operator(module, (x, y), memory_budget=budget)
    assert_dense(found, module, x, y, within=1e-10)
    assert found.planned.chunk is None and "4 weights" not in found.checks
    halves = [(x[:32], y[:32]), (x[32:], y[32:])]
    with refusal("not a weighted mean over its parts"):
        operator(module, halves, memory_budget=budget)
    found = operator(module, halves, weights=[1, 3], memory_budget=budget)
    whole = [parameter_matrix("hessian", module, CROSS, *half) for half in halves]
    assert relative(found.dense(), (whole[0] + 3 * whole[1]) / 4) < 1e-10


# ------------------------------------------------------------------ losses


@refusal(r"values of shape \(2,\): expected a scalar, or one value for each example")
def test_a_loss_of_several_values_must_have_one_for_each_example():
    tasks = lambda f, t: torch.stack([CROSS(f, t), f.square().mean()])  # noqa: E731
    operator(mlp(), data(2), tasks)


# ------------------------------------------------------------------ weights


def tokens(*lengths):
    return [(normal(4, length, 3), torch.randint(3, (4, length))) for length in lengths]


def token_loss(f, y):
    return CROSS(f.flatten(0, 1), y.flatten())


def joined(*batches):
    """All tokens of the batches, as examples."""
    x = torch.cat([x.flatten(0, 1) for x, _ in batches])
    return x, torch.cat([y.flatten() for _, y in batches])


def test_batches_of_other_lengths_ask_for_weights():
    module, batches = mlp(), tokens(5, 9)
    with refusal(r"weigh them by examples, .* or by labels"):
        operator(module, batches, token_loss)
    found = operator(module, batches, token_loss, weights=lambda x, y: y.numel())
    assert_dense(found, module, *joined(*batches))
    with refusal(r"weigh them by examples, .* or by labels"):
        operator(module, [(x, normal(*x.shape)) for x, _ in batches], nn.MSELoss())


def test_batches_that_are_each_of_one_class_have_weights_of_classes():
    """Every part of a batch weighs as much as its examples, and the batches do not."""
    x, y = normal(12, 3), torch.arange(12) // 4
    loss, batches = nn.CrossEntropyLoss(torch.tensor([1.0, 2.0, 5.0]).double()), []
    batches += zip(x.split(2), y.split(2), strict=True)
    with refusal("weigh 0.3333 and 0.6667 in its loss"):
        operator(mlp(), batches, loss)
    found = operator(mlp(), batches, loss, weights=lambda x, y: 1.0 * len(y))
    assert found.shares == [2 / 12] * 6


def test_batches_of_one_length_that_are_padded_to_another_are_weighed_by_their_labels():
    module, batches = mlp(), tokens(6, 6)
    batches[1][1][:, 2:] = -100
    found = operator(module, batches, token_loss)
    assert found.weighing.name == "labels that are not ignored"
    assert_dense(found, module, *joined(*batches))


def assert_right(found):
    assert all(outcome.startswith("right") for outcome in found.checks.values())


@pytest.mark.parametrize("part", ["hessian", "gauss_newton"])
def test_derivatives_are_compared_on_examples_that_have_a_loss(part):
    """The first four, which would be compared, have ignored labels alone."""
    module, (x, y) = mlp(), data(20)
    y[:4] = -100
    found = operator(module, (x, y), part=part)
    assert_right(found)
    assert_dense(found, module, x[4:], y[4:], part)


def test_derivatives_are_compared_on_examples_whose_loss_is_not_zero():
    x, y = data(20)
    weights = (y > 0).double()
    weights[:4] = 0
    loss = lambda f, w: (w[:, None] * f.square()).mean()  # noqa: E731
    assert_right(operator(mlp(), (x, weights), loss))


def contrastive(f, _):
    """Each row should be like the next one; of two rows alone it is 0."""
    likeness = f @ f.mT - 1e9 * torch.eye(len(f), dtype=f.dtype)
    return CROSS(likeness, torch.arange(len(f)).roll(-1))


def test_numbers_for_each_batch_are_the_word_of_the_user():
    """Also where examples depend on each other, and where parts draw other numbers."""
    x, y = data(12)
    thirds = list(zip(x.split(4), y.split(4), strict=True))
    drops = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 3)).double()
    with refusal("parts draw other numbers than the whole.*one number a batch"):
        operator(drops, thirds, seed=1)
    for module, loss, seed in ((mlp(), contrastive, None), (drops, CROSS, 1)):
        found = operator(module, thirds, loss, weights=[1, 2, 3], seed=seed)
        alone = [operator(module, batch, loss, seed=seed).dense() for batch in thirds]
        expected = (alone[0] + 2 * alone[1] + 3 * alone[2]) / 6
        assert relative(found.dense(), expected) < 1e-12


def test_a_loss_that_compares_examples_is_compared_on_more_than_two():
    assert_right(operator(mlp(), data(20), contrastive))
    with refusal("no right second one"):
        operator(between(Swish.apply), data(20), contrastive)


def test_a_loss_whose_labels_number_the_batch_is_compared_on_all_of_it():
    loss = lambda f, y: CROSS(f @ f.mT, y)  # noqa: E731
    x = torch.randn(6, 3, dtype=torch.float64)
    assert_right(operator(mlp(), (x, torch.arange(6)), loss))


KINDS = {
    "parameters": lambda module, x, y: operator(module, (x, y)),
    "layers": lambda module, x, y: LayerOperator(module, CROSS, (x, y), ["0", "2"]),
    "graph": lambda module, x, y: node_operator(Dag.from_sequential(module), x, y),
}


@pytest.mark.parametrize("kind", KINDS)
def test_weights_that_are_written_to_and_back_give_the_same_products(kind):
    module = mlp()
    found = KINDS[kind](module, *data())
    before, weights = found.dense(), copy.deepcopy(module.state_dict())
    with torch.no_grad():
        module[0].weight.mul_(2)
    module.load_state_dict(weights)
    assert torch.equal(found.dense(), before)


# ------------------------------------------------------------------ what is compared, and causes


def sometimes_wrong(m, t):
    """A wrong second derivative where the first input is above 0."""
    h = m.first(t)
    return m.last(torch.where(t[:, :1] > 0, Detached.apply(h), h.sin()))


def branching():
    torch.manual_seed(0)
    return Own(sometimes_wrong, first=nn.Linear(3, 4), last=nn.Linear(4, 3)).double()


@pytest.mark.parametrize("batches", [1, 10])
def test_examples_are_compared_from_all_over_sorted_data(batches):
    x, y = data(40)
    x = x[x[:, 0].argsort()]
    given = list(zip(x.chunk(batches), y.chunk(batches), strict=True))
    with refusal("no right second one"):
        operator(branching(), given)
    found = operator(mlp(), given)
    assert "derivatives compared on 2 of 40 examples" in repr(found)


def test_parameters_that_are_not_reached_are_named_in_a_group_that_is():
    module = Own(
        lambda m, t: m.layer(t) + m.scale, layer=nn.Linear(3, 3), scale=nn.Parameter(torch.ones(3))
    )
    module.register_parameter("unused", nn.Parameter(torch.ones(2)))
    found = operator(module.double(), groups={"all": ["*"]})
    assert "not reached by the examples compared: unused" in repr(found)


def test_causes_of_weights_that_do_not_fit_are_named():
    x, y = data(8)
    halves = [(x[:4], y[:4]), (x[4:], y[4:])]
    norm = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)).double()
    with refusal(r"1 \(BatchNorm1d\) takes statistics of each batch.*call .eval\(\)"):
        operator(norm, halves)
    numbers = [(x, normal(len(x))) for x, _ in halves]
    with refusal(r"output \(2, 1\) and target \(2,\) are broadcast"):
        operator(nn.Linear(3, 1).double(), numbers, nn.MSELoss())
    with refusal(r"give input and target as one tuple, \(x, y\)"):
        ParameterOperator(mlp(), CROSS, x, y)


def test_shifted_labels_are_named():
    """Of padded sequences, as causal language models take them."""

    def shifted(f, y):
        return CROSS(f[:, :-1].flatten(0, 1), y[:, 1:].flatten())

    batches = tokens(6, 6)
    batches[1][1][:2, 3:] = -100
    batches[0][1][:1, 1:] = -100
    with refusal("leaves out the first label of each row"):
        operator(mlp(), batches, shifted)
    left = lambda x, y: (y[:, 1:] != -100).sum()  # noqa: E731
    assert operator(mlp(), batches, shifted, weights=left).checks["4 weights"].startswith("right")


def test_what_is_inconclusive_near_the_weights_is_compared_farther_away():
    """A network that fits its examples, with sines whose second derivative is right, and 2 % too
    large."""

    def built(sine):
        case = small(lambda b, t: sine(b(t)), factor=100.0)(17)
        return LayerOperator(case.module, case.loss, case.data, layers=case.layers)

    checks = built(torch.sin).checks
    for identity in ("2 gradient", "3 product"):
        status, error = checks[identity].split()
        assert status == "right" and float(error) < 1e-5
    with refusal("second derivative"):
        built(WRONG_SECOND)
