"""ParameterOperator of modules as users write them: dense truth whole and split, right or one
line."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import grad, vmap
from torch.utils.data import DataLoader, TensorDataset

from runner.curvature import ParameterOperator, inter_layer_metrics, verify
from runner.curvature.function.repairs import measurable
from tests.curvature.cases import Own
from tests.curvature.module_cases import (
    MODULES,
    LanguageModel,
    classes,
    logits_loss,
    make_module,
    ready,
    x,
)
from tests.curvature.oracles import parameter_matrix, relative
from tests.draws import normal, seeded, tanh_net
from tests.errors import each_row, refusal

LEFT_OUT = ("lstm hidden state", "checkpointed reentrant", "resnet", "embedding bag")
"""These differ from another in their layers alone; ResNet's 4,000 parameters take a minute of dense
Hessians; a bag of embeddings has no second derivative in torch."""
LONG = ("transformer encoder", "lstm sequence first", "flat language model", "cells", "unet")
LONG += ("multihead attention", "weight norm", "checkpointed")
NAMES = [
    pytest.param(name, marks=pytest.mark.slow) if name in LONG else name
    for name in MODULES
    if name not in LEFT_OUT
]


def build(case, **options):
    known = {k: v for k, v in case.options.items() if k in ("batch_dim", "output")}
    return ParameterOperator(*case.problem, **{**known, **options})


@pytest.mark.parametrize("name", NAMES)
def test_products_of_unmodified_modules_whole_and_split(name):
    case, named = make_module(name), {"cross_entropy": F.cross_entropy}
    check = name != "unusual"  # it stops gradients on purpose
    operator = build(case, check=check)
    pick, loss = case.options.get("output"), named.get(case.loss, case.loss)
    plain = case.oracle or operator.module

    def value(out, target):
        return loss(out if pick is None else out[pick], target)

    with measurable(plain.modules()):  # torch's own weight norm has a wrong second derivative
        names = operator.layout.parameters
        expected = parameter_matrix("hessian", plain, value, case.given, case.target, names)
    v = normal(len(expected), 2)
    for found in (operator, build(case, memory_budget=1, check=False)):
        assert float((found @ v - expected @ v).norm()) < 1e-10 * float(expected.norm())
    assert verify(operator).ok is check
    smooth = build(case, part="gauss_newton", check=check)
    assert smooth.checks or not check


def test_an_output_is_picked_by_name():
    module, _, data = make_module("multihead attention").problem
    whole = ParameterOperator(module, logits_loss, data)
    picked = ParameterOperator(module, "cross_entropy", data, output="logits")
    newton = ParameterOperator(module, "cross_entropy", data, part="gauss_newton", output="logits")
    v = normal(whole.shape[0])
    assert torch.allclose(whole @ v, picked @ v, atol=1e-12)
    assert torch.allclose(newton @ v, whole.with_part("gauss_newton") @ v, atol=1e-12)


@pytest.mark.parametrize("part", ["hessian", "gauss_newton"])
def test_an_embedding_bag_has_no_second_derivative_in_torch_and_is_told(part):
    problem = make_module("embedding bag").problem
    with refusal(r"embedding_bag.*nn\.Embedding and a sum\), or leave its parameters out"):
        ParameterOperator(*problem, part=part)
    assert verify(ParameterOperator(*problem, ["mix", "head"], part)).ok


# ------------------------------------------------------------------ in pieces

STRUCTURED = ["flat language model", "multihead attention", "two inputs", "lstm sequence first"]


@pytest.mark.parametrize("name", STRUCTURED)
def test_gauss_newton_of_structured_outputs_and_flat_targets(name):
    case = make_module(name)
    operator = build(case, part="gauss_newton")
    assert verify(operator, generator=seeded()).ok
    v = normal(operator.shape[0])
    split = build(case, part="gauss_newton", memory_budget=1, check=False)
    assert torch.allclose(operator @ v, split @ v, atol=1e-11)


CLASS_WEIGHTS = torch.tensor([0.5, 2.0, 1.0, 3.0, 0.7], dtype=torch.float64)


def counted(_, target):
    """What the labels of a batch weigh."""
    return CLASS_WEIGHTS[target[target >= 0]].sum()


@pytest.mark.parametrize("part", ["hessian", "gauss_newton"])
@pytest.mark.parametrize("weighted", [False, True])
def test_ignored_labels_and_class_weights_in_several_batches_are_those_of_one(part, weighted):
    module, tokens = ready(LanguageModel(flat=True)), classes(24, 5).view(8, 3)
    target = classes(24, 5)
    target[[1, 2, 5, 13, 14, 15, 16, 17]] = -100
    loss, options = nn.CrossEntropyLoss(), {"part": part}
    if weighted:
        loss, options["weights"] = nn.CrossEntropyLoss(CLASS_WEIGHTS), counted
    whole = ParameterOperator(module, loss, (tokens, target), **options)
    v = normal(whole.shape[0])
    halves = [(tokens[:4], target[:12]), (tokens[4:], target[12:])]
    for data, budget in (([(tokens, target)], 1), (halves, 1), (halves, 1 << 30)):
        found = ParameterOperator(module, loss, data, memory_budget=budget, **options)
        assert torch.allclose(found @ v, whole @ v, atol=1e-12)
    labels = "weights=" if weighted else "labels that are not ignored"
    assert f"weighed by {labels}" in repr(found)


# ------------------------------------------------------------------ what would be another matrix

INPUT, ZEROS = torch.randn(4, 3, generator=seeded()), torch.zeros(4, 3)
PAIR = INPUT, torch.tensor([0, 1, 2, 0])
IGNORED = INPUT, torch.tensor([2, -100, -100, -100])
WEIGHTED = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 3.0, 1.0]))


def summed(output, target):
    return F.mse_loss(output, target, reduction="sum")


def two_means(output, target):
    """Over the labels that are not 2, and over those that are not 1."""
    first = F.cross_entropy(output, target, ignore_index=2)
    return first + F.cross_entropy(output, target, ignore_index=1)


def mean_and_penalty(output, target):
    """Over the labels that are not ignored, next to one over the examples."""
    return F.cross_entropy(output, target) + output.square().mean()


def weighted_mean(output, target):
    value, kept = target
    return ((output - value).square().mean(1) * kept).sum() / kept.sum()


def kept_labels(output, target):
    return F.cross_entropy(output[target != -100], target[target != -100])


def sum_over_count(output, target):
    return F.cross_entropy(output, target, reduction="sum") / (target != -100).sum()


def root(output, target):
    return F.cross_entropy(output, target).sqrt()


EIGHT = torch.randn(8, 3, generator=seeded())
VALUES, KEPT = EIGHT.flip(0), torch.tensor([1.0, 1, 1, 0, 1, 1, 0, 0])
MASKED = [(EIGHT[:4], (VALUES[:4], KEPT[:4])), (EIGHT[4:], (VALUES[4:], KEPT[4:]))]
LABELS = torch.tensor([0, 2, 1, -100, 2, 1, -100, -100])
CLASSES = [(EIGHT[:4], classes(8)[:4]), (EIGHT[4:], classes(8)[4:])]
TWO = [(INPUT, torch.tensor([0, 0, 0, 0])), (INPUT, torch.tensor([0, 1, 1, 0]))]
SUM, OTHER = "is a sum over the examples", "weigh .* in its loss, other than their numbers"
NO_MEAN = "not a weighted mean over its parts"
SHARES = r"parts of a batch weigh 0\.\d+ and 0\.\d+ in its loss, other"
REFUSED = {
    "sum": (summed, [(INPUT, ZEROS)] * 2, SUM),
    "sum later": (summed, [(INPUT[:1], ZEROS[:1]), (INPUT, ZEROS)], SUM),
    "two means": (two_means, TWO, f"{OTHER}|{NO_MEAN}"),
    "class weights": (WEIGHTED, CLASSES, SHARES),
    "a root of a mean": (root, CLASSES, "use one batch, or give weights="),
    "no pairs": ("mse", [INPUT, INPUT, INPUT], "found Tensor"),
    "three": ("mse", [(*PAIR, INPUT)], "found a tuple of 3"),
    "a dictionary": ("mse", [{"x": INPUT}], r"found dict: give \(batch, target\)"),
    "one dictionary": ("mse", {"x": INPUT, "y": ZEROS}, "found dict: give .* or loss=None"),
    "a penalty next to labels": (mean_and_penalty, [PAIR, IGNORED], NO_MEAN),
    "a mask of its own": (weighted_mean, MASKED, OTHER),
    "a mask of its own, turned": (weighted_mean, MASKED[::-1], OTHER),
}


@each_row("loss, data, message", REFUSED)
def test_data_and_losses_that_would_give_another_matrix_are_refused(loss, data, message):
    with refusal(message):
        ParameterOperator(nn.Linear(3, 3), loss, data)


def close(found, expected):
    ones = torch.ones(found.shape[0])
    return torch.allclose(found @ ones, expected @ ones, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("loss", [kept_labels, sum_over_count])
@pytest.mark.parametrize("order", [1, -1])
def test_a_mean_of_ones_own_over_labels_that_count_is_weighed_by_them(loss, order):
    module, halves = tanh_net(3, 5, 3), [(EIGHT[:4], LABELS[:4]), (EIGHT[4:], LABELS[4:])]
    found = ParameterOperator(module, loss, halves[::order])
    assert close(found, ParameterOperator(module, "cross_entropy", (EIGHT, LABELS)))


def test_a_mask_of_ones_own_is_weighed_by_what_the_user_says():
    module, weights = tanh_net(3, 5, 3), lambda given, target: target[1].sum()
    found = ParameterOperator(module, weighted_mean, MASKED, weights=weights)
    assert close(found, ParameterOperator(module, weighted_mean, (EIGHT, (VALUES, KEPT))))


def test_weights_that_a_call_rescales_are_refused_and_left_alone():
    module = nn.Sequential(nn.Embedding(5, 2, max_norm=0.1), nn.Flatten(), nn.Linear(4, 2))
    before = module[0].weight.detach().clone()
    with refusal("max_norm=None"):
        ParameterOperator(module, "cross_entropy", (torch.randint(0, 5, (4, 2)), classes(4, 2)))
    assert torch.equal(module[0].weight, before)


# ------------------------------------------------------------------ right where guesses were wrong


class Counting(nn.Module):
    """Counts its calls in a buffer that its output depends on, and keeps numbers and tensors of
    them."""

    def __init__(self):
        super().__init__()
        self.inner, self.outer, self.last, self.best = nn.Linear(3, 4), nn.Linear(4, 2), 0.0, np.nan
        self.kept = {"out": []}
        self.register_buffer("count", torch.zeros(()))

    def forward(self, t):
        self.count += 1
        hidden = torch.tanh(self.inner(t))
        self.last = float(hidden.detach().norm())
        self.kept["out"].append(hidden)
        return self.outer(hidden) * self.count


@pytest.mark.parametrize("part, budget", [("hessian", 1 << 30), ("gauss_newton", 1)])
def test_a_module_that_changes_its_buffers_is_measured_as_it_was(part, budget):
    module, data = Counting().double(), (x(3, 3), x(3, 2))
    plain = nn.Sequential(module.inner, nn.Tanh(), module.outer)
    expected = ParameterOperator(plain, "mse", data, part=part).dense()
    operator = ParameterOperator(module, "mse", data, part=part, memory_budget=budget)
    module(x(5, 3))
    module.count.zero_()
    for _ in range(2):
        assert torch.allclose(operator.dense(), expected, atol=1e-12)
    assert float(module.count) == 0 and verify(operator).ok


def twice():
    """One module under two names."""
    layer = nn.Linear(4, 4)
    run = lambda m, t: m.last(torch.tanh(m.second(torch.tanh(m.first(t)))))  # noqa: E731
    return Own(run, first=layer, second=layer, last=nn.Linear(4, 4))


def force(m, place):
    """Minus the gradient of an energy."""
    place = place.detach().requires_grad_()
    return -torch.autograd.grad(m.net(place).sum(), place, create_graph=True)[0]


def slope(m, t):
    return vmap(grad(lambda row: m.net(row).sum()))(t)


def residual(m, t):
    """Of an equation that u and its derivative by the input satisfy."""
    u = m.net(t).sum(1, keepdim=True)
    return torch.autograd.grad(u.sum(), t, create_graph=True)[0] + u


def scalar(forward):
    """Around a network of one output."""
    return lambda: Own(forward, net=tanh_net(4, 5, 1))


def mixing():
    """With a sparse buffer."""
    module = Own(lambda m, t: torch.sparse.mm(m.mix, m.net(t)), net=tanh_net(4, 5, 4))
    module.register_buffer("mix", torch.eye(6).flip(0).to_sparse())
    return module


def at_time():
    """A first input of one row for all examples."""
    run = lambda m, time, t: m.inner(torch.cat([t, time.expand(len(t), 1)], 1)).tanh()  # noqa: E731
    return Own(run, inner=nn.Linear(4, 3))


def correlated(m, t):
    """Of a parameter below one."""
    return m.share * t[:, :1] + torch.sqrt(1 - m.share**2) * t[:, 1:]


def of_four(m, t):
    """Refuses batches of another size in a way of its own."""
    if len(t) != 4:
        raise m.error("expected four examples")
    return m.a(t)


def one_size(error):
    return lambda: Own(of_four, a=nn.Linear(3, 3), error=error)


def fitted(margin):
    torch.manual_seed(0)
    module = tanh_net(3, 4, 2).double()
    module[2].bias.data.copy_(torch.tensor([margin, -margin]))
    return lambda: module


def fits(module, t):
    return [(part, module(part).detach()) for part in t.chunk(2)]


def narrow():
    return nn.Linear(3, 2).bfloat16()


CORRELATED, LINE = Own(correlated, share=nn.Parameter(torch.tensor([0.95]))), nn.Linear(3, 2)
INPUTS, TARGETS = torch.randn(12, 3, generator=seeded()), torch.randn(12, 2, generator=seeded(1))
PLACES = torch.randn(6, 4, generator=seeded(2)), torch.randn(6, 4, generator=seeded(3))
DATA, FOUR, LITTLE = (
    TensorDataset(INPUTS, TARGETS),
    (INPUTS[:4], classes(4)),
    {"memory_budget": 700},
)
NARROW = (INPUTS[:8].bfloat16(), TARGETS[:8].bfloat16())
RIGHT = {
    "two names": (twice, PLACES, {}),
    "two names, one group": (twice, PLACES, {"groups": ["last"]}),
    "differentiates": (scalar(force), PLACES, {}),
    "differentiates, Gauss-Newton": (scalar(force), PLACES, {"part": "gauss_newton"}),
    "differentiates by torch.func": (scalar(slope), PLACES, {}),
    "an input with a gradient": (
        scalar(residual),
        (PLACES[0].clone().requires_grad_(), PLACES[1]),
        {},
    ),
    "a sparse buffer": (mixing, PLACES, {}),
    "one row for all": (at_time, ((torch.tensor([0.5]), INPUTS), INPUTS.cos()), {}),
    "fitted to rounding": (fitted(15.0), (INPUTS.double(), classes(12, 12) // 11), {}),
    "fitted by half": (fitted(8.5), (INPUTS.double(), classes(12, 1)), {}),
    "a perfect fit": (lambda: CORRELATED, fits(CORRELATED, PLACES[0][:, :2]), {}),
    "one batch fits": (lambda: LINE, [fits(LINE, INPUTS)[0], (INPUTS, TARGETS)], {}),
    "small batches": (lambda: LINE, DataLoader(DATA, 1), LITTLE),
    "shuffled": (lambda: LINE, DataLoader(DATA, 2, shuffle=True), LITTLE),
    "bfloat16": (narrow, [NARROW, NARROW], {}),
    "AssertionError": (one_size(AssertionError), FOUR, {}),
    "KeyError": (one_size(KeyError), FOUR, {}),
}


@each_row("make, data, options", RIGHT)
def test_modules_and_data_that_were_once_refused_or_wrong_are_measured(make, data, options):
    module, loss = make(), "mse"
    if isinstance(data, tuple) and data[1].dtype == torch.int64:
        loss = "cross_entropy"
    before = {k: (p, p.detach().clone()) for k, p in module.named_parameters()}
    operator = ParameterOperator(module, loss, data, **options)
    assert verify(operator).ok and (operator @ torch.ones(operator.shape[0])).isfinite().all()
    after = dict(module.named_parameters())
    assert after.keys() == before.keys()
    assert all(after[k] is p and torch.equal(p, value) for k, (p, value) in before.items())


def test_single_examples_whose_target_has_fewer_dimensions_are_measured():
    """(1, 1) against (1,): of two examples, every output would be compared with every target."""
    given, target, module = x(3, 3), x(3), nn.Linear(3, 1).double()
    batches = list(zip(given.split(1), target.split(1), strict=True))
    found = ParameterOperator(module, lambda o, t: (o - t).square().mean(), batches)
    expected = ParameterOperator(module, "mse", (given, target[:, None])).dense()
    assert torch.allclose(found.dense(), expected, atol=1e-12)


class Rounded(torch.autograd.Function):
    """Straight through, without a gradient for the step."""

    @staticmethod
    def forward(ctx, weight, step):
        return torch.round(weight / step) * step

    @staticmethod
    def backward(ctx, g):
        return g, None


def quantised(m, t):
    return F.linear(torch.tanh(t), Rounded.apply(m.inner.weight, m.step), m.inner.bias)


def test_a_straight_through_estimator_is_named_and_measured_on_request():
    module = Own(quantised, inner=nn.Linear(4, 3), step=nn.Parameter(torch.tensor(0.1)))
    data = torch.randn(6, 4), torch.randn(6, 3)
    with refusal("straight-through"):
        ParameterOperator(module, "mse", data)
    operator = ParameterOperator(module, "mse", data, check=False)
    image = operator @ torch.ones(16)
    assert not image[operator.groups["module"]].any() and image[operator.groups["inner"]].any()


def test_complex_tensors_of_the_output_are_no_constants():
    both = lambda m, t: (m.a(t), torch.fft.fft(torch.tanh(m.a(t))))  # noqa: E731
    module, data = Own(both, a=nn.Linear(3, 3)).double(), (x(4, 3), x(4, 3))

    def loss(output, target):
        return F.mse_loss(output[0], target) + output[1].abs().square().mean()

    assert verify(ParameterOperator(module, loss, data)).ok
    with refusal("complex tensor of the output"):
        ParameterOperator(module, loss, data, part="gauss_newton")


@pytest.mark.parametrize("options", [{}, {"memory_budget": 1}, {"part": "gauss_newton"}])
def test_threads_get_the_same_products(options):
    data, module = (torch.randn(8, 4), classes(8, 3)), nn.Linear(4, 3)
    operators = [ParameterOperator(module, "cross_entropy", data, **options) for _ in range(2)]
    directions = torch.randn(15, 4)
    expected = [operator.matvec(directions) for operator in operators]
    asked = [(k, j) for j in range(4) for k in range(2)] * 5
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda at: operators[at[0]].matvec(directions[:, at[1]]), asked))
    for image, (k, j) in zip(found, asked, strict=True):
        assert relative(image, expected[k][:, j]) < 1e-6


def test_threads_build_operators_of_one_module():
    """A thread that has replaced the module's tensors is waited for."""
    data, module = (torch.randn(16, 4), classes(16, 3)), nn.Linear(4, 3)

    def dense(_):
        return ParameterOperator(module, "cross_entropy", data).dense()

    expected = dense(None)
    with ThreadPoolExecutor(8) as pool:
        for found in pool.map(dense, range(40)):
            assert found.shape == expected.shape and relative(found, expected) < 1e-6


def test_probes_of_a_group_of_two_components_are_no_signs():
    """The block of two biases in front of a softmax is a multiple of [[1, -1], [-1, 1]]: signs give
    nothing or all."""
    net = ready(tanh_net(3, 6, 2))
    groups = {"rest": ["0", "2.weight"], "bias": "2.bias"}
    operator = ParameterOperator(net, "cross_entropy", (x(4, 3), classes(4, 2)), groups)
    exact = float(operator.block("bias", "bias").dense().norm())
    found = inter_layer_metrics(operator, [("bias", "bias")])["bias", "bias"]
    assert found.R.value == pytest.approx(exact, rel=1e-6)
