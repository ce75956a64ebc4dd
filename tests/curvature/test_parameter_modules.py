"""ParameterOperator of modules as users write them: dense truth whole and split, structured inputs and outputs."""

from __future__ import annotations

import random
import re
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from runner.curvature import (
    CurvatureOperator,
    group_metrics,
    verify,
)
from runner.curvature.function.repairs import measurable
from runner.curvature.graph.from_module import trace_module
from runner.curvature.parameters.operator import ParameterOperator
from tests.curvature.cases import Own, Swish, seeded
from tests.curvature.module_cases import (
    MODULES,
    LanguageModel,
    ModuleCase,
    Recurrent,
    classes,
    logits_loss,
    make_module,
    ready,
    x,
)
from tests.curvature.oracles import parameter_matrix

LEFT_OUT = ("lstm hidden state", "checkpointed reentrant", "resnet", "embedding bag")
"""These differ from another in their nodes alone; ResNet's 4,000 parameters take a minute of dense Hessians; a bag of
embeddings has no second derivative in torch."""
LONG = (
    "transformer encoder",
    "lstm sequence first",
    "flat language model",
    "cells",
    "compiled",
    "unet",
)
LONG += ("multihead attention", "mlp", "weight norm", "checkpointed", "reused")
NAMES = [
    pytest.param(name, marks=pytest.mark.slow) if name in LONG else name
    for name in MODULES
    if name not in LEFT_OUT
]


def loss_of(case: ModuleCase):
    named = {"cross_entropy": F.cross_entropy, "mse": F.mse_loss}
    return named.get(case.loss, case.loss) if isinstance(case.loss, str) else case.loss


def build(case: ModuleCase, **options) -> ParameterOperator:
    known = {k: v for k, v in case.options.items() if k in ("batch_dim", "output")}
    return ParameterOperator(case.module, loss_of(case), [case.batch], **{**known, **options})


@pytest.mark.parametrize("name", NAMES)
def test_products_of_unmodified_modules_whole_and_split(name):
    case = make_module(name)
    operator = build(case)
    pick = case.options.get("output")
    loss = lambda out, t: loss_of(case)(out if pick is None else out[pick], t)  # noqa: E731
    names = operator.layout.parameters
    plain = case.oracle or operator.module
    with measurable(plain):  # torch's own weight norm has a wrong second derivative
        expected = parameter_matrix("hessian", plain, loss, case.given, case.target, names)
    v = torch.randn(2, len(expected), dtype=torch.float64, generator=seeded(3))
    for found in (operator, build(case, memory_budget=1, check=False)):
        assert torch.allclose(
            found.matvec(v.mT), expected @ v.mT, rtol=1e-8, atol=1e-10 * float(expected.norm())
        )
    assert len(build(case, memory_budget=1, check=False).batches) == case.examples
    smooth = build(case, part="gauss_newton")
    a, b = v
    assert float(a @ (smooth @ b)) == pytest.approx(float(b @ (smooth @ a)), rel=1e-8, abs=1e-12)
    if (
        name == "unusual"
    ):  # a part without gradient: the products are autograd's, not those of the function
        assert not verify(operator, generator=seeded()).ok
    else:
        assert verify(smooth, generator=seeded()).ok


STRUCTURED = ["flat language model", "multihead attention", "two inputs", "lstm sequence first"]


@pytest.mark.parametrize(
    ("name", "part"), zip(STRUCTURED, ["gauss_newton", "empirical_fisher"] * 2, strict=True)
)
def test_other_parts_of_structured_outputs_and_flat_targets(name, part):
    case = make_module(name)
    operator = build(case, part=part)
    assert verify(operator, generator=seeded()).ok
    v = torch.randn(operator.shape[0], dtype=torch.float64, generator=seeded(3))
    assert torch.allclose(
        operator @ v, build(case, part=part, memory_budget=1, check=False) @ v, atol=1e-11
    )


class TimeFirst(nn.Module):
    """(S, B, 2) to (S * B, 2)."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.lstm, self.head = nn.LSTM(2, 3), nn.Linear(3, 2)

    def forward(self, t: Tensor) -> Tensor:
        return self.head(self.lstm(t)[0]).flatten(0, 1)


def time_first(target, loss=F.cross_entropy, **options):
    return lambda: ParameterOperator(
        TimeFirst().double(), loss, [(x(3, 4, 2), target)], batch_dim=1, **options
    )


REFUSED = {
    "time first, flat, halves that agree": (
        time_first(classes(12, 2), memory_budget=1),
        r"not the mean of its parts' losses",
    ),
    "time first, flat": (
        time_first(torch.arange(12) // 4 % 2, memory_budget=1),
        r"not the mean of its parts' losses|cannot be measured alone",
    ),
    "target without examples": (
        lambda: ParameterOperator(
            ready(Recurrent()),
            lambda f, t: (f - t).square().mean(),
            [(x(4, 2, 2), x(2))],
            memory_budget=1,
        ),
        "without a row",
    ),
    "fisher of rows in another order": (
        time_first(
            classes(12, 2).view(4, 3),
            lambda f, t: F.cross_entropy(f, t.T.flatten()),
            part="empirical_fisher",
        ),
        "rows of its 4 examples|not the mean",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_cut_rightly_is_refused_in_one_line(name):
    torch.manual_seed(0)
    make, message = REFUSED[name]
    with pytest.raises(ValueError) as refused:
        make()
    assert re.search(message, str(refused.value)) and "\n" not in str(refused.value), refused.value


WEIGHTS = torch.tensor([0.5, 2.0, 1.0, 3.0, 0.7], dtype=torch.float64)


@pytest.mark.parametrize(
    ("part", "weight"),
    [
        ("hessian", None),
        ("hessian", WEIGHTS),
        ("gauss_newton", WEIGHTS),
        ("fisher", None),
        ("fisher", WEIGHTS),
    ],
)
def test_ignored_labels_and_class_weights_in_several_batches_are_those_of_one(part, weight):
    torch.manual_seed(0)
    module, tokens = ready(LanguageModel(flat=True)), classes(24, 5).view(8, 3)
    target = torch.arange(24) % 5
    target[[1, 2, 5, 13, 14, 15, 16, 17]] = -100
    loss = nn.CrossEntropyLoss(weight=weight)
    halves = [(tokens[:4], target[:12]), (tokens[4:], target[12:])]
    keys = {"part": part, "likelihood": "categorical" if part == "fisher" else None}
    whole = ParameterOperator(module, loss, (tokens, target), **keys)
    v = torch.randn(whole.shape[0], dtype=torch.float64)
    for found in (
        ParameterOperator(module, loss, halves, **keys),
        ParameterOperator(module, loss, halves, memory_budget=1, **keys),
        ParameterOperator(module, loss, [(tokens, target)], memory_budget=1, **keys),
    ):
        assert torch.allclose(found @ v, whole @ v, atol=1e-12)
    if part == "hessian" and weight is not None:
        assert verify(ParameterOperator(module, loss, halves), generator=seeded()).ok


def test_an_output_is_picked_by_name():
    case = make_module("multihead attention")
    whole = ParameterOperator(case.module, logits_loss, [case.batch])
    picked = ParameterOperator(case.module, nn.CrossEntropyLoss(), [case.batch], output="logits")
    v = torch.randn(whole.shape[0], dtype=torch.float64)
    assert torch.allclose(whole @ v, picked @ v, atol=1e-12)
    fisher = ParameterOperator(
        case.module, nn.CrossEntropyLoss(), [case.batch], part="fisher", output="logits"
    )
    assert torch.allclose(fisher @ v, whole.with_part("gauss_newton") @ v, atol=1e-12)


@pytest.mark.parametrize("part", ["hessian", "gauss_newton"])
def test_a_backward_without_second_derivative_is_refused(part):
    torch.manual_seed(0)
    module = Own(
        lambda m, t: m.b(Swish.apply(m.a(t))), a=nn.Linear(3, 4), b=nn.Linear(4, 2)
    ).double()
    for budget in (1 << 30, 1):
        with pytest.raises(ValueError, match=r"differentiated twice|second derivative"):
            ParameterOperator(
                module,
                nn.CrossEntropyLoss(),
                [(x(4, 3), classes(4, 2))],
                part=part,
                memory_budget=budget,
            ).dense()


def test_an_embedding_bag_has_no_second_derivative_in_torch_and_is_told():
    case = make_module("embedding bag")
    for part in ("hessian", "gauss_newton"):
        with pytest.raises(
            ValueError,
            match=r"embedding_bag.*nn\.Embedding and a sum\), or leave its parameters out",
        ):
            ParameterOperator(case.module, case.loss, [case.batch], part=part)
        operator = ParameterOperator(case.module, case.loss, [case.batch], ["mix", "head"], part)
        assert verify(operator, generator=seeded()).ok


class Skewed(torch.autograd.Function):
    """A backward that takes a value it depends on for a constant, as torch's own weight norm does."""

    @staticmethod
    def forward(ctx, v: Tensor) -> Tensor:
        ctx.save_for_backward(v)
        ctx.norm = v.detach().norm()
        return v / ctx.norm

    @staticmethod
    def backward(ctx, g: Tensor) -> Tensor:
        (v,) = ctx.saved_tensors
        return g / ctx.norm - v * (v * g).sum() / ctx.norm**3


def test_a_wrong_second_derivative_is_refused_by_symmetry_and_named_by_the_certificate():
    def skewed(m: Own, t: Tensor) -> Tensor:
        return m.head(torch.tanh(F.linear(t, Skewed.apply(m.first.weight), m.first.bias)))

    torch.manual_seed(0)
    module = Own(skewed, first=nn.Linear(3, 4), head=nn.Linear(4, 2)).double()
    batch = x(5, 3), classes(5, 2)
    with pytest.raises(ValueError, match="not those of a symmetric matrix"):
        ParameterOperator(module, nn.CrossEntropyLoss(), [batch])
    unchecked = ParameterOperator(module, nn.CrossEntropyLoss(), [batch], check=False)
    found = verify(unchecked, generator=seeded())
    assert not found.ok and "group 'first'" in found.reasons[0]


def test_a_module_that_changes_its_mode_is_refused():
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)).eval()
    operator = ParameterOperator(module, "cross_entropy", [(torch.randn(6, 3), classes(6, 2))])
    module.train()
    with pytest.raises(ValueError, match="training mode"):
        operator @ torch.ones(operator.shape[0])
    module.eval()
    assert (operator @ torch.ones(operator.shape[0])).isfinite().all()


PAIR = torch.randn(4, 3, generator=seeded()), torch.tensor([0, 1, 2, 0])
IGNORED = PAIR[0], torch.tensor([2, -100, -100, -100])
WEIGHTED = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 3.0, 1.0]))
LOADER = torch.utils.data.DataLoader(
    torch.utils.data.TensorDataset(*PAIR), batch_size=2, shuffle=True
)
ZEROS = torch.zeros(4, 3)


def summed(output, target):
    return F.mse_loss(output, target, reduction="sum")


def two_means(output, target):
    """Over the labels that are not 2, and over those that are not 1."""
    return F.cross_entropy(output, target, ignore_index=2) + F.cross_entropy(
        output, target, ignore_index=1
    )


@pytest.mark.parametrize(
    ("loss", "data", "keys", "message"),
    [
        (summed, [(PAIR[0], ZEROS)], {}, "is a sum"),
        (summed, [(PAIR[0][:1], ZEROS[:1]), (PAIR[0], ZEROS)], {}, "is a sum"),
        (summed, [(PAIR[0][i : i + 1], ZEROS[:1]) for i in range(4)], {}, "is a sum"),
        (
            two_means,
            [(PAIR[0], torch.tensor([0, 0, 0, 0])), (PAIR[0], torch.tensor([0, 1, 1, 0]))],
            {},
            "several means",
        ),
        ("cross_entropy", [PAIR, IGNORED], {"part": "empirical_fisher"}, "ignores labels"),
        (WEIGHTED, [PAIR], {"part": "empirical_fisher"}, "weighs classes"),
        (nn.MSELoss(reduction="sum"), [(PAIR[0], torch.zeros(4, 3))], {}, "reduction='mean'"),
        ("mse", [PAIR[0], PAIR[0]], {}, "found Tensor"),
        ("mse", [(*PAIR, PAIR[0])], {}, "found 3 entries"),
        ("mse", [{"x": PAIR[0]}], {}, "found dict"),
        (WEIGHTED, LOADER, {"memory_budget": 200}, "shuffle=False"),
    ],
)
def test_data_and_losses_that_would_give_another_matrix_are_refused(loss, data, keys, message):
    torch.manual_seed(0)
    module = nn.Linear(3, 3)
    with torch.no_grad():  # a sum and a mean of losses that are zero are the same
        module.weight.zero_()
        module.bias.zero_()
    with pytest.raises(ValueError, match=message):
        ParameterOperator(module, loss, data, **keys)


def mean_and_penalty(output, target):
    """Over the labels that are not ignored, next to one over the examples."""
    return mean_over_labels(output, target) + output.square().mean()


def mean_over_labels(output, target):
    return F.cross_entropy(output.flatten(0, 1), target.flatten())


def texts(*labels):
    """Two labels each."""
    return [
        (torch.randn(1, 2, 3, generator=seeded(i)), torch.tensor([label]))
        for i, label in enumerate(labels)
    ]


@pytest.mark.parametrize("labels", [([0, 1], [2, 0], [1, -100]), ([0, -100], [2, 0])])
def test_a_mean_over_examples_next_to_one_over_labels_is_noticed_from_single_examples(labels):
    module = nn.Linear(3, 3)
    with pytest.raises(ValueError, match="not the mean of its parts"):
        ParameterOperator(module, mean_and_penalty, texts(*labels))
    whole = [torch.cat(t) for t in zip(*texts(*labels), strict=True)]
    direction = torch.ones(12)
    plain = [
        ParameterOperator(module, mean_over_labels, data) @ direction
        for data in (texts(*labels), tuple(whole))
    ]
    assert torch.allclose(*plain, rtol=1e-4, atol=1e-6)


def test_an_empirical_fisher_of_a_tuple_needs_the_rows_of_the_examples():
    given = torch.randn(4, 6, 3), torch.randn(4, 6, 2)
    with pytest.raises(ValueError, match="rows of its 6 examples"):
        ParameterOperator(
            nn.GRU(3, 2),
            lambda o, t: F.mse_loss(o[0], t),
            [given],
            part="empirical_fisher",
            batch_dim=1,
        )


def test_weights_that_a_call_rescales_are_refused_and_left_alone():
    module = nn.Sequential(nn.Embedding(5, 2, max_norm=0.1), nn.Flatten(), nn.Linear(4, 2))
    before = module[0].weight.detach().clone()
    with pytest.raises(ValueError, match="max_norm=None"):
        ParameterOperator(module, "cross_entropy", [(torch.randint(0, 5, (4, 2)), classes(4, 2))])
    assert torch.equal(module[0].weight, before)


class Counting(nn.Module):
    """Keeps its activations, counts its calls in a buffer, an attribute and a loose tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer, self.calls, self.loose = (
            nn.Linear(3, 4),
            nn.Linear(4, 2),
            0,
            torch.zeros(1),
        )
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        self.loose += 1
        self.calls += 1
        self.kept = torch.tanh(self.inner(x))
        return self.outer(self.kept) * self.count


@pytest.mark.parametrize("budget", [1 << 30, 1])
@pytest.mark.parametrize("part", ["hessian", "gauss_newton"])
def test_a_module_that_changes_itself_is_measured_as_it_was_and_put_back(part, budget):
    torch.manual_seed(0)
    module, data = (
        Counting().double(),
        (torch.randn(6, 3, dtype=torch.float64), torch.randn(6, 2, dtype=torch.float64)),
    )
    plain = nn.Sequential(module.inner, nn.Tanh(), module.outer)
    expected = ParameterOperator(plain, "mse", data, part=part).dense()
    operator = ParameterOperator(module, "mse", data, part=part, memory_budget=budget)
    for _ in range(2):
        assert torch.allclose(operator.dense(), expected, atol=1e-12)
    assert (float(module.count), float(module.loose), module.calls, hasattr(module, "kept")) == (
        0,
        0,
        0,
        False,
    )
    assert verify(operator).ok


def test_data_that_change_in_place_are_refused():
    x, y = torch.randn(4, 3), torch.randn(4, 2)
    data = [(x, y)]
    operator = ParameterOperator(nn.Linear(3, 2), "mse", data)
    data.append((x, y))  # the list is the user's own
    assert (operator @ torch.ones(8)).isfinite().all()
    x.mul_(2)
    with pytest.raises(ValueError, match="data have changed"):
        operator @ torch.ones(8)


def test_a_mean_over_labels_next_to_one_over_examples_is_refused_where_a_later_batch_ignores_labels():
    torch.manual_seed(0)
    with pytest.raises(ValueError, match="not the mean of its parts"):
        ParameterOperator(
            nn.Linear(3, 3), lambda o, t: F.cross_entropy(o, t) + o.square().mean(), [PAIR, IGNORED]
        )


def test_a_mean_of_a_network_that_fits_its_data_is_no_sum():
    module, x = nn.Linear(3, 2), torch.randn(6, 3)
    data = [(x, module(x).detach()), (x, torch.zeros(6, 2))]
    found = ParameterOperator(module, lambda output, target: F.mse_loss(output, target), data)
    assert torch.allclose(
        found.dense(), ParameterOperator(module, "mse", data[1]).dense(), atol=1e-6
    )


def test_single_examples_whose_target_has_fewer_dimensions_are_measured():
    """(1, 1) against (1,): of two examples, every output would be compared with every target."""
    torch.manual_seed(0)
    x, y = torch.randn(3, 3, dtype=torch.float64), torch.randn(3, dtype=torch.float64)
    module = nn.Linear(3, 1).double()
    found = ParameterOperator(
        module,
        lambda o, t: (o - t).square().mean(),
        [(x[i : i + 1], y[i : i + 1]) for i in range(3)],
    )
    assert torch.allclose(
        found.dense(), ParameterOperator(module, "mse", (x, y[:, None])).dense(), atol=1e-12
    )


KEPT = torch.tensor([1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0])
LABELS = torch.tensor([0, 2, 1, 1, 2, -100, -100, -100])


def weighted_mean(output, target):
    value, kept = target
    return ((output - value).square().mean(1) * kept).sum() / kept.sum()


def kept_labels(output, target):
    return F.cross_entropy(output[target != -100], target[target != -100])


def sum_over_count(output, target):
    return F.cross_entropy(output, target, reduction="sum") / (target != -100).sum()


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("loss", [weighted_mean, kept_labels, sum_over_count])
def test_a_mean_of_ones_own_over_what_is_not_masked_needs_one_batch(loss, order):
    x, values = torch.randn(8, 4, generator=seeded()), torch.randn(8, 3, generator=seeded(1))
    target = (values, KEPT) if loss is weighted_mean else LABELS
    halves = [slice(0, 4), slice(4, 8)]
    batches = [(x[s], (values[s], KEPT[s]) if loss is weighted_mean else LABELS[s]) for s in halves]
    module = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    with pytest.raises(ValueError, match="not the mean of its parts"):
        ParameterOperator(module, loss, [batches[i] for i in order])
    full = loss if loss is weighted_mean else nn.CrossEntropyLoss()
    found = [ParameterOperator(module, f, [(x, target)]) @ torch.ones(43) for f in (loss, full)]
    assert torch.allclose(*found, rtol=1e-4, atol=1e-6)


def test_a_part_without_any_label_that_counts_is_no_mean():
    x, values, kept = torch.randn(8, 4), torch.randn(8, 3), torch.tensor([1.0, 0, 0, 0, 1, 1, 1, 0])
    data = [(x[s], (values[s], kept[s])) for s in (slice(0, 4), slice(4, 8))]
    with pytest.raises(ValueError, match="not the mean of its parts"):
        ParameterOperator(nn.Linear(4, 3), weighted_mean, data)


class Rounded(torch.autograd.Function):
    """Straight through, without a gradient for the step."""

    @staticmethod
    def forward(ctx, weight, step):
        return torch.round(weight / step) * step

    @staticmethod
    def backward(ctx, g):
        return g, None


class Quantised(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.step = nn.Linear(4, 3), nn.Parameter(torch.tensor(0.1))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(torch.tanh(x), Rounded.apply(self.inner.weight, self.step), self.inner.bias)


@pytest.mark.parametrize("part", ["hessian", "gauss_newton"])
def test_a_parameter_whose_backward_gives_nothing_has_zero_curvature(part):
    operator = ParameterOperator(
        Quantised(), nn.MSELoss(), (torch.randn(6, 4), torch.randn(6, 3)), part=part
    )
    image = operator @ torch.ones(16)
    assert not image[operator.groups["module"]].any() and image[operator.groups["inner"]].any()
    assert operator.rows({"inner": torch.ones(1, 15)}, []) == {}


class Twice(nn.Module):
    """One module under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second, self.last = self.first, nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.tanh(self.second(torch.tanh(self.first(x)))))


@pytest.mark.parametrize("groups", [None, ["last"]])
def test_a_module_under_two_names_is_measured_and_stays_as_it_is(groups):
    module, x, y = Twice(), torch.randn(6, 4), torch.randn(6, 3)
    before = {name: (p, p.detach().clone()) for name, p in module.named_parameters()}
    assert verify(ParameterOperator(module, nn.MSELoss(), (x, y), groups)).ok
    after = dict(module.named_parameters())
    assert after.keys() == before.keys()
    assert all(after[k] is p and torch.equal(p, value) for k, (p, value) in before.items())


class Force(nn.Module):
    """Minus the gradient of an energy."""

    def __init__(self) -> None:
        super().__init__()
        self.energy = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 1))

    def forward(self, place: Tensor) -> Tensor:
        place = place.detach().requires_grad_()
        return -torch.autograd.grad(self.energy(place).sum(), place, create_graph=True)[0]


@pytest.mark.parametrize("part", ["hessian", "gauss_newton"])
def test_a_module_that_differentiates_is_measured(part):
    data = torch.randn(6, 4, generator=seeded()), torch.randn(6, 4, generator=seeded(1))
    operators = [
        ParameterOperator(Force(), nn.MSELoss(), data, part=part, memory_budget=b)
        for b in (1 << 30, 1)
    ]
    assert all(verify(operator).ok for operator in operators)


@pytest.mark.parametrize(
    "keys", [{}, {"memory_budget": 1}, {"part": "gauss_newton", "memory_budget": 1}]
)
def test_threads_get_the_same_products(keys):
    data = torch.randn(16, 4), classes(16, 3)
    operators = [
        ParameterOperator(nn.Linear(4, 3), "cross_entropy", data, **keys) for _ in range(2)
    ]
    directions = torch.randn(15, 4)
    expected = [operator.matvec(directions) for operator in operators]
    asked = [(k, j) for j in range(4) for k in range(2)] * 5
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda at: operators[at[0]].matvec(directions[:, at[1]]), asked))
    assert all(
        torch.equal(image, expected[k][:, j]) for image, (k, j) in zip(found, asked, strict=True)
    )


class Warm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.temperature = nn.Linear(4, 3), 1.0

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.inner(x)) / self.temperature


def test_settings_of_the_module_and_tensors_of_the_loss_that_changed_are_refused():
    module, weight = Warm(), torch.ones(3)
    operator = ParameterOperator(
        module, nn.CrossEntropyLoss(weight=weight), (torch.randn(6, 4), classes(6, 3))
    )
    module.temperature = 2.0
    with pytest.raises(ValueError, match="its temperature"):
        operator @ torch.ones(15)
    module.temperature = 1.0
    weight[0] = 3.0
    with pytest.raises(ValueError, match="weight has changed"):
        operator @ torch.ones(15)


class AnyOrder(torch.utils.data.Sampler):
    """Batches of several sizes, in another order at every reading."""

    def __init__(self) -> None:
        self.readings = 0

    def __len__(self) -> int:
        return 3

    def __iter__(self):
        self.readings += 1
        parts = [range(8), range(8, 10), range(10, 15)]
        return iter([list(parts[(i + self.readings) % 3]) for i in range(3)])


def test_batches_of_several_sizes_in_any_order_are_weighted_by_what_they_have():
    x, y = torch.randn(15, 6), classes(15, 3)
    module = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(x, y), batch_sampler=AnyOrder()
    )
    operator, direction = (
        ParameterOperator(module, "cross_entropy", loader, memory_budget=300),
        torch.randn(53),
    )
    expected = ParameterOperator(module, "cross_entropy", (x, y)) @ direction
    assert all(
        torch.allclose(operator @ direction, expected, rtol=1e-4, atol=1e-6) for _ in range(3)
    )


class AtTime(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 3)

    def forward(self, time: Tensor, x: Tensor) -> Tensor:
        return torch.tanh(self.inner(torch.cat([x, time.expand(len(x), 1)], 1)))


def test_a_first_input_of_one_row_is_named():
    data = [((torch.tensor([0.5]), torch.randn(n, 3)), torch.randn(n, 3)) for n in (8, 4)]
    with pytest.raises(ValueError, match="'0' has one row"):
        ParameterOperator(AtTime(), "mse", data)
    operator = ParameterOperator(AtTime(), "mse", data, shared=["0"])
    assert operator.examples == 12 and verify(operator).ok


def test_examples_that_are_fitted_to_rounding_do_not_make_an_operation_wrong():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    module[2].bias.data.copy_(torch.tensor([15.0, -15.0]))
    labels = torch.zeros(12, dtype=torch.long)
    labels[-1] = 1
    assert verify(
        ParameterOperator(module, "cross_entropy", (torch.randn(12, 3).double(), labels))
    ).ok


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_loader_that_shuffles_small_batches_is_measured(size):
    data = torch.utils.data.TensorDataset(torch.randn(12, 3), torch.randn(12, 2))
    loader = torch.utils.data.DataLoader(data, size, shuffle=True)
    found = ParameterOperator(nn.Linear(3, 2), "mse", loader, memory_budget=700) @ torch.ones(8)
    assert found.isfinite().all()


def test_two_batches_in_bfloat16_are_measured():
    data = [(torch.randn(8, 3).bfloat16(), torch.randn(8, 2).bfloat16()) for _ in range(2)]
    assert ParameterOperator(nn.Linear(3, 2).bfloat16(), "mse", data).examples == 16


class Meter(nn.Module):
    """Keeps a number of each call, and one that is undefined."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.last, self.best = nn.Linear(3, 2), 0.0, float("nan")
        self.kept: dict[str, list[Tensor]] = {"out": []}

    def forward(self, x: Tensor) -> Tensor:
        out = torch.tanh(self.inner(x))
        self.last = float(out.norm())
        self.kept["out"].append(out)
        return out


def test_numbers_that_calls_write_down_are_no_settings_and_containers_are_put_back():
    module = Meter()
    operator = ParameterOperator(module, "mse", (torch.randn(4, 3), torch.randn(4, 2)))
    assert module.kept == {"out": []}
    module(torch.randn(5, 3))
    assert (operator @ torch.ones(8)).isfinite().all() and len(module.kept["out"]) == 1
    dag = trace_module(module, "mse", (torch.randn(4, 3), torch.randn(4, 2)), ["inner"])
    between = CurvatureOperator(dag, dag.x, dag.y)
    module(torch.randn(5, 3))
    assert between.block("inner", "inner").dense().isfinite().all() and len(module.kept["out"]) == 2


class WithLoss(nn.Module):
    """Its loss, from labels among its inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 3)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(self.inner(x), labels)


def test_batches_without_a_target_are_measured():
    module, x, labels = WithLoss(), torch.randn(8, 4), classes(8, 3)
    data = [({"x": x[s], "labels": labels[s]}, None) for s in (slice(0, 4), slice(4, 8))]
    found = ParameterOperator(module, lambda output, _: output, data) @ torch.ones(15)
    expected = ParameterOperator(module.inner, "cross_entropy", (x, labels)) @ torch.ones(15)
    assert torch.allclose(found, expected, rtol=1e-4, atol=1e-6)


class Correlated(nn.Module):
    """Of a parameter below one."""

    def __init__(self) -> None:
        super().__init__()
        self.share = nn.Parameter(torch.tensor([0.95]))

    def forward(self, x: Tensor) -> Tensor:
        return self.share * x[:, :1] + torch.sqrt(1 - self.share**2) * x[:, 1:]


def test_a_perfect_fit_near_the_end_of_a_range_is_measured():
    module, x = Correlated(), torch.randn(6, 2)
    data = [(part, module(part).detach()) for part in x.chunk(2)]
    assert (ParameterOperator(module, "mse", data) @ torch.ones(1)).isfinite().all()


class Complex(nn.Module):
    """A real and a complex tensor."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(3, 3)

    def forward(self, t):
        return self.a(t), torch.fft.fft(torch.tanh(self.a(t)))


def test_complex_tensors_of_the_output_are_no_constants():
    torch.manual_seed(0)
    module, data = Complex().double(), [(x(4, 3), x(4, 3))]

    def loss(output, target):
        return F.mse_loss(output[0], target) + output[1].abs().square().mean()

    ParameterOperator(module, loss, data)
    for part in ("gauss_newton", "empirical_fisher"):
        with pytest.raises(ValueError, match="complex tensor of the output"):
            ParameterOperator(module, loss, data, part=part)
    with pytest.raises(ValueError, match="complex tensor of the output"):
        trace_module(module, loss, data[0])


class OneSize(nn.Module):
    """Refuses batches of another size in a way of its own."""

    def __init__(self, error):
        super().__init__()
        self.a, self.error = nn.Linear(3, 3), error

    def forward(self, t):
        if len(t) != 4:
            raise self.error("expected four examples")
        return self.a(t)


@pytest.mark.parametrize("error", [AssertionError, KeyError, type("Own", (Exception,), {})])
def test_a_module_of_one_batch_size_may_refuse_others_in_any_way(error):
    assert ParameterOperator(
        OneSize(error), "cross_entropy", (x(4, 3).float(), classes(4))
    ).shape == (12, 12)


class Drawing(nn.Module):
    """Adds noise from a generator of its own."""

    def __init__(self, generator, draw):
        super().__init__()
        self.a, self.generator, self.draw = nn.Linear(3, 3), generator, draw

    def forward(self, t):
        return self.a(t + 1e-6 * self.draw(self.generator))


GENERATORS = {
    "python": (lambda: random.Random(0), lambda g: g.random()),
    "numpy": (lambda: np.random.Generator(np.random.MT19937(0)), lambda g: g.random()),
    "torch": (lambda: torch.Generator().manual_seed(0), lambda g: torch.rand(3, generator=g)),
}


@pytest.mark.parametrize("name", GENERATORS)
def test_a_generator_of_the_modules_own_is_put_back_and_refused(name):
    make, draw = GENERATORS[name]
    module, twin = Drawing(make(), draw), make()
    with pytest.raises(ValueError, match=r"random|draws"):
        ParameterOperator(module, "cross_entropy", (x(4, 3).float(), classes(4)))
    assert torch.equal(torch.as_tensor(draw(module.generator)), torch.as_tensor(draw(twin)))


def test_verify_refuses_a_loader_that_gives_others_each_time():
    examples = torch.utils.data.TensorDataset(x(10, 3), classes(10))
    loader = torch.utils.data.DataLoader(examples, 4, shuffle=True)
    module = ready(nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3)))
    assert verify(ParameterOperator(module, "cross_entropy", loader)).ok
    with pytest.raises(ValueError, match="shuffle=False"):
        verify(ParameterOperator(module, "cross_entropy", loader, memory_budget=300))


def test_cumulative_log_sums_have_a_gauss_newton_matrix():
    module = ready(
        Own(lambda m, t: m.b(torch.logcumsumexp(m.a(t), -1)), a=nn.Linear(3, 3), b=nn.Linear(3, 3))
    )
    data = (x(4, 3), classes(4))
    operator = ParameterOperator(module, "cross_entropy", data, part="gauss_newton")
    expected = parameter_matrix("gauss_newton", module, F.cross_entropy, *data)
    assert torch.allclose(operator.dense(), expected, atol=1e-12)


def replaced(net):
    net[1] = nn.Sigmoid()


def hooked(net):
    net[1].register_forward_hook(lambda m, given, out: 2 * out)


@pytest.mark.parametrize("change", [replaced, hooked, lambda net: net.append(nn.Tanh())])
def test_a_network_that_was_put_together_anew_is_refused(change):
    net = ready(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)))
    operator = ParameterOperator(net, "cross_entropy", (x(4, 3), classes(4)))
    operator @ torch.ones(31, dtype=torch.float64)
    change(net)
    with pytest.raises(ValueError, match="submodules or hooks"):
        operator @ torch.ones(31, dtype=torch.float64)


def test_another_tensor_or_array_behind_the_data_is_refused():
    buffer = np.ones((4, 3))
    net = ready(nn.Linear(3, 3))
    operator = ParameterOperator(net, "cross_entropy", (torch.from_numpy(buffer), classes(4)))
    operator @ torch.ones(12, dtype=torch.float64)
    buffer[:] = 2
    with pytest.raises(ValueError, match="the data have changed"):
        operator @ torch.ones(12, dtype=torch.float64)
    loss = nn.CrossEntropyLoss(weight=torch.ones(3, dtype=torch.float64))
    loss.scale = torch.ones((), dtype=torch.float64)
    weighted = ParameterOperator(net, lambda f, y: loss.scale * loss(f, y), (x(4, 3), classes(4)))
    loss.scale = 2 * loss.scale
    with pytest.raises(ValueError, match="scale"):
        weighted @ torch.ones(12, dtype=torch.float64)


def test_tracing_in_several_threads_leaves_the_module_as_it_was():
    net = ready(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)))
    data = (x(4, 3), classes(4))
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(4) as pool:
            orders = list(
                pool.map(lambda _: trace_module(net, "cross_entropy", data).order, range(12))
            )
    finally:
        sys.setswitchinterval(before)
    assert set(orders) == {("0", "2")} and not any(
        "forward" in vars(module) for module in net.modules()
    )


def test_groups_without_components_are_left_out_or_refused():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.none = nn.Linear(3, 3), nn.Parameter(torch.zeros(0))

        def forward(self, t):
            return self.inner(t)

    net, data = ready(Net()), (x(4, 3), classes(4))
    assert tuple(ParameterOperator(net, "cross_entropy", data).groups) == ("inner",)
    with pytest.raises(ValueError, match="group 'none' are empty"):
        ParameterOperator(net, "cross_entropy", data, ["none", "inner"])


def test_probes_of_a_group_of_two_components_are_no_signs():
    """The block of two biases in front of a softmax is a multiple of [[1, -1], [-1, 1]]: signs give nothing or all."""
    torch.manual_seed(0)
    net = ready(nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 2)))
    groups = {"rest": ["0", "2.weight"], "bias": "2.bias"}
    operator = ParameterOperator(net, "cross_entropy", (x(4, 3), classes(4, 2)), groups)
    exact = float(operator.block("bias", "bias").dense().norm())
    for seed in range(20):
        found = group_metrics(
            operator, [("bias", "bias")], probes=2, ranks=[], generator=seeded(seed)
        )["bias", "bias"]
        assert found.R.error > 0 or found.R.value == pytest.approx(exact, rel=1e-6)
