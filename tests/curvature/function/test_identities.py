"""Functions that are wrong on purpose: each is refused with one line that names the cause, or
measured right."""

import copy
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrize

from runner.curvature import (
    CurvatureOperator,
    Dag,
    LayerOperator,
    ParameterOperator,
    trace_estimate,
    verify,
)
from tests.curvature.cases import Detached, Own, Swish, with_backward
from tests.curvature.oracles import parameter_matrix, relative
from tests.draws import seeded, tanh_net
from tests.errors import refusal

CROSS = nn.CrossEntropyLoss()


def mlp():
    torch.manual_seed(0)
    return tanh_net(3, 4, 3).double()


def data(n=6):
    generator = seeded(1)
    return torch.randn(n, 3, generator=generator).double(), torch.arange(n) % 3


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
    return nn.Parameter(torch.randn(3, 3))


def in_a_list():
    """A parameter that is registered, and read from a list."""
    module = Own(lambda m, t: t @ m.list[0].sin(), weight=weight()).double()
    module.list = [module.weight]
    return module


def dropping():
    return nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 3)).double().train()


def between(function):
    module = Own(
        lambda m, t: m.last(function(m.first(t))), first=nn.Linear(3, 4), last=nn.Linear(4, 3)
    )
    return module.double()


def noisy_loss(f, y):
    return F.cross_entropy(f, y) * (1 + 1e-4 * torch.rand(()))


WRONG = {
    "dropout": (dropping, CROSS, r"1 \(Dropout\) draws at random in training mode: call .eval\(\)"),
    "a random draw of 1e-4": (mlp, noisy_loss, "draws at random"),
    "a counter": (
        lambda: Own(counting, layer=nn.Linear(3, 3), calls=0).double(),
        CROSS,
        "keeps values from one call to the next",
    ),
    "a cached weight": (
        lambda: Own(cached, raw=weight(), kept=None).double(),
        CROSS,
        "'raw' is held outside",
    ),
    "a list of parameters": (in_a_list, CROSS, "'weight' is held outside"),
    "straight through": (
        lambda: between(straight),
        CROSS,
        "the gradient differs .* check='report'",
    ),
    "detached": (lambda: between(lambda t: t.sin() * t.detach()), CROSS, "the gradient differs"),
    "a wrong second derivative": (
        lambda: between(Detached.apply),
        CROSS,
        "an operation has a first derivative and no right second",
    ),
    "once differentiable": (lambda: between(Swish.apply), CROSS, "second derivative"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_refused_in_one_line_that_names_the_cause(name):
    make, loss, text = WRONG[name]
    with refusal(text):
        ParameterOperator(make(), loss, data())


def test_a_wrong_second_derivative_is_named_by_verify():
    found = verify(ParameterOperator(between(Detached.apply), CROSS, data(), check=False))
    assert not found.ok and "group 'first'" in found.reasons[0]


def test_a_report_warns_keeps_the_text_and_gives_the_number():
    module = between(lambda t: t.sin() * t.detach())
    with pytest.warns(RuntimeWarning, match="the gradient differs"):
        operator = ParameterOperator(module, CROSS, data(), check="report")
    assert operator.failures and "FAILED" in repr(operator)
    x, y = data()
    assert relative(operator.dense(), parameter_matrix("hessian", module, CROSS, x, y)) < 1e-12
    with refusal("expected check as True, 'report' or False, found 'no'"):
        ParameterOperator(module, CROSS, data(), check="no")
    assert ParameterOperator(module, CROSS, data(), check=False).checks == {}


def test_a_once_differentiable_part_is_seen_by_the_gauss_newton_identity():
    with refusal("second derivative"):
        ParameterOperator(between(Swish.apply), CROSS, data(), part="gauss_newton")


@pytest.mark.parametrize("kind", ["of a weight", "of a module"])
def test_hooks_that_change_gradients_are_named(kind):
    module = nn.Sequential(nn.Linear(3, 3).double(), mlp())
    if kind == "of a weight":
        module[1][0].weight.register_hook(lambda g: g.clamp(-1e-3, 1e-3))
    else:
        module[1].register_full_backward_hook(lambda m, i, o: tuple(2 * g for g in i))
    with refusal("has hooks that change gradients"):
        ParameterOperator(module, CROSS, data())


# ------------------------------------------------------------------ right where guesses were wrong


def test_a_parametrization_that_is_cached_is_no_constant():
    module, (x, y) = mlp(), data()
    parametrize.register_parametrization(module[0], "weight", Own(lambda _, t: t * t.abs()))
    expected = parameter_matrix("hessian", module, CROSS, x, y)
    newton = parameter_matrix("gauss_newton", module, CROSS, x, y)
    with parametrize.cached():
        module(x)
        assert relative(ParameterOperator(module, CROSS, (x, y)).dense(), expected) < 1e-12
        operator = ParameterOperator(module, CROSS, (x, y), part="gauss_newton")
        assert relative(operator.dense(), newton) < 1e-12


@pytest.mark.filterwarnings("ignore:memory_budget is")
@pytest.mark.parametrize("budget", [1 << 30, 1000])
@pytest.mark.parametrize("kind", ["a number in an object", "data", "a mode"])
def test_changes_after_building_are_noticed(kind, budget):
    module, (x, y) = nn.Sequential(mlp(), nn.Dropout(0.3)).eval(), data()
    settings = {"penalty": 1.0}

    def loss(f, t):
        return F.cross_entropy(f, t) + settings["penalty"] * f.square().mean()

    operator = ParameterOperator(module, loss, [(x, y)], memory_budget=budget)
    operator.refuse_changes()
    v = torch.ones(operator.shape[0]).double()
    operator @ v
    change = {
        "a number in an object": lambda: settings.update(penalty=2.0),
        "data": lambda: x.mul_(1.5),
        "a mode": module.train,
    }
    change[kind]()
    calls = [operator.refuse_changes, lambda: trace_estimate(operator)]
    if kind != "a number in an object":  # which costs an evaluation of the loss
        calls += [lambda: operator @ v, operator.gradient]
    for call in calls:
        with refusal("the loss has changed since this operator was built"):
            call()


def test_the_module_random_state_hooks_and_gradients_are_left_alone():
    module, (x, y), calls = nn.Sequential(mlp(), nn.BatchNorm1d(3).double()).train(), data(), []
    module.register_forward_hook(lambda *_: calls.append(1))
    before = {k: v.clone() for k, v in module.state_dict().items()}
    state = torch.get_rng_state()
    operator = ParameterOperator(module, CROSS, (x, y))
    operator.dense()
    assert torch.equal(state, torch.get_rng_state()) and all(
        p.grad is None for p in module.parameters()
    )
    assert all(torch.equal(before[k], v) for k, v in module.state_dict().items())
    assert len(calls) < 30


def test_batchnorm_in_training_mode_over_one_batch_and_not_over_pieces():
    parts = nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 3)
    module, (x, y) = nn.Sequential(*parts).double(), data(8)
    operator = ParameterOperator(module, CROSS, (x, y))
    assert relative(operator.dense(), parameter_matrix("hessian", module, CROSS, x, y)) < 1e-10
    with refusal("not a weighted mean over its parts"):
        ParameterOperator(module, CROSS, [(x[:4], y[:4]), (x[4:], y[4:])])


# ------------------------------------------------------------------ losses


def test_a_loss_of_several_values_must_have_one_for_each_example():
    tasks = lambda f, t: torch.stack([F.cross_entropy(f, t), f.square().mean()])  # noqa: E731
    with refusal(r"values of shape \(2,\): expected a scalar, or one value for each example"):
        ParameterOperator(mlp(), tasks, data(2))


def test_a_module_that_returns_its_loss():
    def run(m, x, labels):
        f = m.net(x)
        return {"loss": F.cross_entropy(f, labels), "logits": f}

    module, (x, y) = Own(run, net=mlp()), data()
    batches = [{"x": x[:4], "labels": y[:4]}, {"x": x[4:], "labels": y[4:]}]
    operator = ParameterOperator(module, None, batches, output="loss")
    assert relative(operator.dense(), parameter_matrix("hessian", module.net, CROSS, x, y)) < 1e-12
    with refusal("part='hessian' alone"):
        ParameterOperator(module, None, batches, part="gauss_newton", output="loss")


# ------------------------------------------------------------------ weights


def tokens(lengths, ignored=0):
    generator = seeded(2)
    found = []
    for length in lengths:
        x = torch.randn(4, length, 3, generator=generator).double()
        y = torch.randint(0, 3, (4, length), generator=generator)
        y[0, :ignored] = -100
        found.append((x, y))
    return found


def token_loss(f, y):
    return F.cross_entropy(f.flatten(0, 1), y.flatten())


def joined(module, batches):
    """The Hessian of the mean over all labels that count."""
    x = torch.cat([x.flatten(0, 1) for x, _ in batches])
    y = torch.cat([y.flatten() for _, y in batches])
    return parameter_matrix("hessian", module, CROSS, x, y)


def test_batches_of_other_lengths_ask_for_weights():
    module, batches = mlp(), tokens([5, 9])
    with refusal(r"weigh them by examples, .* or by labels"):
        ParameterOperator(module, token_loss, batches)
    by_labels = ParameterOperator(module, token_loss, batches, weights=lambda x, y: y.numel())
    assert relative(by_labels.dense(), joined(module, batches)) < 1e-12
    halves = ParameterOperator(module, token_loss, batches, weights=[1, 1]).dense()
    each = [joined(module, [b]) for b in batches]
    assert relative(halves, (each[0] + each[1]) / 2) < 1e-12


def test_ignored_labels_make_labels_the_weights_and_say_so():
    module, batches = mlp(), tokens([6, 6], ignored=3)
    batches[1] = tokens([6])[0]
    operator = ParameterOperator(module, token_loss, batches)
    assert "weighed by labels that are not ignored" in repr(operator)
    assert relative(operator.dense(), joined(module, batches)) < 1e-12


@pytest.mark.parametrize("part", ["hessian", "gauss_newton"])
def test_derivatives_are_compared_on_examples_that_have_a_loss(part):
    """The first four, which would be compared, have ignored labels alone."""
    module, (x, y) = mlp(), data(20)
    y[:4] = -100
    operator = ParameterOperator(module, CROSS, (x, y), part=part)
    assert all(outcome.startswith("right") for outcome in operator.checks.values())
    assert relative(operator.dense(), parameter_matrix(part, module, CROSS, x[4:], y[4:])) < 1e-12


def test_derivatives_are_compared_on_examples_whose_loss_is_not_zero():
    x, y = data(20)
    weights = (y > 0).double()
    weights[:4] = 0
    operator = ParameterOperator(mlp(), lambda f, w: (w[:, None] * f.square()).mean(), (x, weights))
    assert all(outcome.startswith("right") for outcome in operator.checks.values())


def contrastive(f, _):
    """Each row should be like the next one; of two rows alone it is 0."""
    likeness = f @ f.mT - 1e9 * torch.eye(len(f), dtype=f.dtype)
    return F.cross_entropy(likeness, torch.arange(len(f)).roll(-1))


def test_a_loss_that_compares_examples_is_compared_on_more_than_two():
    operator = ParameterOperator(mlp(), contrastive, data(20))
    assert all(outcome.startswith("right") for outcome in operator.checks.values())
    with refusal("no right second one"):
        ParameterOperator(between(Swish.apply), contrastive, data(20))


@pytest.mark.parametrize("kind", ["parameters", "layers", "graph"])
def test_weights_that_are_written_to_and_back_give_the_same_products(kind):
    module, (x, y) = mlp(), data()
    operator = {
        "parameters": lambda: ParameterOperator(module, CROSS, (x, y)),
        "layers": lambda: LayerOperator(module, CROSS, (x, y), ["0", "2"]),
        "graph": lambda: CurvatureOperator(Dag.from_sequential(module), x, y),
    }[kind]()
    before = operator.dense()
    weights = copy.deepcopy(module.state_dict())
    with torch.no_grad():
        module[0].weight.mul_(2)
    module.load_state_dict(weights)
    assert torch.equal(operator.dense(), before)


# ------------------------------------------------------------------ Fisher


def gaussian(f, y):
    return F.gaussian_nll_loss(f[:, 0], y, f[:, 1].exp())


FISHER = {
    "a sigmoid in the module": (
        torch.sigmoid,
        lambda f, y: F.binary_cross_entropy(f[:, 0], (y > 0).double()),
    ),
    "a softmax in the module": (lambda f: f.softmax(1), lambda f, y: F.nll_loss(f.log(), y)),
    "two heads": (
        lambda f: f,
        lambda f, y: F.cross_entropy(f[:, :2], y % 2) + F.cross_entropy(f[:, 1:], y % 2),
    ),
    "a variance as well": (lambda f: f, lambda f, y: gaussian(f, y.double())),
    "a temperature": (lambda f: f, lambda f, y: 4 * F.cross_entropy(f / 2, y)),
    "smoothed labels": (lambda f: f, lambda f, y: F.cross_entropy(f, y, label_smoothing=0.1)),
}


@pytest.mark.parametrize("name", FISHER)
def test_a_fisher_matrix_of_another_likelihood_is_refused(name):
    last, loss = FISHER[name]
    module = Own(lambda m, t: last(m.net(t)), net=mlp())
    with refusal(r"the slope of the loss is not that of minus the logarithm of a density"):
        ParameterOperator(module, loss, data(), part="fisher")
    for kind in ("categorical", "bernoulli", "normal"):
        with refusal("the slope of the loss"):
            ParameterOperator(module, loss, data(), part="fisher", likelihood=kind)


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool])
def test_binary_labels_as_whole_numbers_are_those_as_real_ones(dtype):
    x, y = data(6)
    module = Own(lambda m, t: m.net(t)[:, 0], net=mlp())

    def loss(f, y):
        return F.binary_cross_entropy_with_logits(f, y.double())

    given = [(x, (y > 0).to(kind)) for kind in (dtype, torch.float64)]
    whole, real = (ParameterOperator(module, loss, batch, part="fisher") for batch in given)
    assert whole.likelihood == "bernoulli" and relative(whole.dense(), real.dense()) < 1e-12


@pytest.mark.parametrize("ignored", [False, True])
def test_another_part_of_an_operator_has_the_checks_of_its_own(ignored):
    """An empirical Fisher matrix needs a plain mean over all examples."""
    x, y = data(9)
    y[-2:] = -100 if ignored else 1
    operator = ParameterOperator(mlp(), CROSS, (x, y))
    made = partial(ParameterOperator, mlp(), CROSS, (x, y), part="empirical_fisher")
    twin = partial(operator.with_part, "empirical_fisher")
    if ignored:
        for make in (made, twin):
            with refusal("plain mean over the examples"):
                make()
    else:
        assert torch.equal(twin().dense(), made().dense()) and twin().checks == made().checks
        assert operator.counts == twin().counts == [9]
