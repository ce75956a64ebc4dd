"""Each of these once gave a wrong number without a word: refused with advice, or right."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from runner.curvature import (
    CurvatureOperator,
    Dag,
    Node,
    ParameterOperator,
    block_metrics,
    couplings,
    exact_blocks,
    frobenius_norms,
    gauss_newton_blocks,
    gn_gaps,
    group_metrics,
    inter_layer_metrics,
    lanczos_extremes,
    parameter_hessian,
    parametric_blocks,
    resonance,
    split_blocks,
    stable_rank,
    stable_ranks,
    verify,
)
from tests.curvature.cases import Case, dense_hessian, relative_error

torch.manual_seed(0)
X, Y = torch.randn(4, 6, dtype=torch.float64), torch.tensor([0, 1, 2, 0])
PAIR = [("0", "0")]


def mlp(outputs=3):
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, outputs)).double()


def chain(fn, dtype=torch.float64, loss="cross_entropy", outputs=3):
    """input -> h (Linear) -> a (fn) -> out (Linear)."""
    torch.manual_seed(2)
    first, last = nn.Linear(6, 5).to(dtype), nn.Linear(5, outputs).to(dtype)
    return Dag([Node("h", ("input",), first), Node("a", ("h",), fn), Node("out", ("a",), last)], loss)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def scaled(factor):
    return lambda output, target: factor * F.cross_entropy(output, target, reduction="none")


# ------------------------------------------------------------------ S1: the caller's gradient mode


EVERYWHERE = {
    "inter_layer_metrics": lambda dag, _: [
        e.R.value for e in inter_layer_metrics(dag, X, Y, generator=seeded()).values()
    ],
    "parametric_blocks": lambda dag, _: [float(b.norm()) for b in parametric_blocks(dag, X, Y).values()],
    "parameter_hessian": lambda dag, _: [float(parameter_hessian(dag, X, Y).matrix.norm())],
    "group_metrics": lambda _, o: [m.R.value for m in group_metrics(o, generator=seeded()).values()],
    "verify": lambda dag, o: [verify(dag, X, Y, generator=seeded()).ok, verify(o, generator=seeded()).ok],
}


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("name", EVERYWHERE)
def test_the_rest_of_the_engine_is_the_same_in_every_gradient_mode(mode, name):
    net = mlp()
    dag, operator = Dag.from_sequential(net), ParameterOperator(net, nn.CrossEntropyLoss(), [(X, Y)])
    expected = EVERYWHERE[name](dag, operator)
    with mode():
        assert EVERYWHERE[name](dag, operator) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("part", ["total", "gauss_newton", "tensor"])
def test_products_are_the_same_in_every_gradient_mode(mode, part):
    dag = Dag.from_sequential(mlp())
    expected = getattr(split_blocks(dag, X, Y), part)["0", "0"]
    before = CurvatureOperator(dag, X, Y, part=part)
    with mode():
        inside = CurvatureOperator(dag, X.clone(), Y, part=part)
        for operator in (before, inside):
            assert torch.allclose(operator.block("0", "0").dense(), expected, rtol=1e-12)
            assert frobenius_norms(operator, PAIR, generator=seeded())["0", "0"].value > 0
        assert lanczos_extremes(before, generator=seeded()).largest.value != 0
        assert torch.equal(exact_blocks(dag, X.clone(), Y)["0", "0"], exact_blocks(dag, X, Y)["0", "0"])
        assert gn_gaps(dag, X, Y, None, PAIR, generator=seeded())["0", "0"].gap.value > 0


# ------------------------------------------------------------------ S2: examples that mix


class Recurrent(nn.Module):
    """An LSTM with the default batch_first=False, given (B, T, d): it runs over the examples."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(5, 5).double()

    def forward(self, h):
        return self.lstm(h.unsqueeze(1))[0].squeeze(1)


def causal(t):
    mask = torch.ones(len(t), len(t), dtype=torch.bool).tril()
    return torch.softmax((t @ t.T).masked_fill(~mask, -torch.inf), 1) @ t


MIXING = {
    "cumsum": lambda t: torch.tanh(t).cumsum(0),
    "reversed cumsum": lambda t: torch.tanh(t).flip(0).cumsum(0).flip(0),
    "causal attention": causal,
    "LSTM over dimension 0": Recurrent(),
    "position in the batch": lambda t: torch.tanh(t) * torch.arange(1, len(t) + 1).unsqueeze(1),
    "batch statistics": lambda t: torch.tanh(F.batch_norm(t, None, None, training=True)),
}


@pytest.mark.parametrize("measure", [exact_blocks, gauss_newton_blocks, split_blocks, CurvatureOperator])
@pytest.mark.parametrize("name", MIXING)
def test_examples_that_mix_are_refused(name, measure):
    with pytest.raises(ValueError, match="node 'a'"):
        measure(chain(MIXING[name]), X, Y)


def first_and_last(t):
    changed = t.clone()
    changed[-1] += t[0] * t[-1]
    return changed


def halves(t):
    changed = t.clone()
    changed[: len(t) // 2] += 0.1 * t[len(t) // 2 : len(t) // 2 * 2]
    return changed


def ghost_batches(t):
    return torch.cat([part - part.mean(0) for part in t.split(4)])


SPARINGLY = {
    "the last by the first": first_and_last,
    "one half by the other": halves,
    "batches of four": ghost_batches,
    "the largest": lambda t: t / t.abs().max(),
    "a thousandth of the mean": lambda t: t + 1e-3 * t.mean(0),
    "the number of examples": lambda t: t / len(t),
    "distances": lambda t: t + torch.exp(-torch.cdist(t, t)).sum(1, keepdim=True),
}


@pytest.mark.parametrize("examples", [2, 3, 8, 9, 33])
@pytest.mark.parametrize("name", SPARINGLY)
def test_examples_that_mix_sparingly_are_refused_in_batches_of_any_size(name, examples):
    for seed in range(3):
        x = torch.randn(examples, 6, generator=seeded(seed), dtype=torch.float64)
        with pytest.raises(ValueError, match="'a' mixes the examples"):
            exact_blocks(chain(SPARINGLY[name]), x, torch.arange(examples) % 3)


def test_batch_norm_is_refused_when_both_halves_are_equal():
    twice = torch.cat([X[:2], X[:2]])
    dag = chain(lambda t: torch.tanh(F.batch_norm(t, None, None, training=True)))
    with pytest.raises(ValueError, match="'a' mixes the examples"):
        exact_blocks(dag, twice, Y)


def test_one_example_that_mixes_with_its_own_copies_is_refused():
    with pytest.raises(ValueError, match="'a' mixes the examples"):
        CurvatureOperator(chain(MIXING["cumsum"]), X[:1], Y[:1])


# ------------------------------------------------------------------ S3: losses that are sums


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("batch", [1, 4])
def test_a_summed_loss_is_refused_however_small(dtype, batch):
    net, x = mlp().to(dtype), X[:batch].to(dtype)
    with torch.no_grad():  # logits so far apart that every loss is about 1e-6 or below
        net[2].weight.mul_(0)
        net[2].bias.copy_(torch.tensor([14.0, 0, 0]))
    y = torch.zeros(batch, dtype=torch.long)
    with pytest.raises(ValueError, match="looks like a sum"):
        exact_blocks(Dag.from_sequential(net, loss=nn.CrossEntropyLoss(reduction="sum")), x, y)
    mean = exact_blocks(Dag.from_sequential(net, loss=nn.CrossEntropyLoss()), x, y)
    named = exact_blocks(Dag.from_sequential(net), x, y)
    assert relative_error(mean, named) < 1e-4


def test_a_summed_loss_of_a_perfect_fit_is_refused():
    dag = chain(torch.tanh, loss=nn.MSELoss(reduction="sum"))
    target = dag.forward(X)["out"].detach()
    with pytest.raises(ValueError, match="not the mean"):
        exact_blocks(dag, X, target)


# ------------------------------------------------------------------ S4: labels


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32, torch.bool])
def test_labels_of_any_integer_type(dtype):
    """A uint8 or boolean tensor as an index is a mask: B = K makes that silent."""
    y = torch.tensor([1, 0, 1])
    dag = Dag.from_sequential(mlp())
    expected = exact_blocks(dag, X[:3], y)
    found = exact_blocks(dag, X[:3], y.to(dtype))
    assert all(torch.equal(found[pair], expected[pair]) for pair in expected)
    product = CurvatureOperator(dag, X[:3], y.to(dtype)).block("0", "0").dense()
    assert torch.allclose(product, expected["0", "0"])


@pytest.mark.parametrize("label", [-1, -100, 3, 255])
@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("measure", [exact_blocks, CurvatureOperator])
def test_labels_out_of_range_are_refused(label, check, measure):
    with pytest.raises(ValueError, match=rf"expected classes 0 to 2, found {label} for example 2"):
        measure(Dag.from_sequential(mlp()), X, torch.tensor([0, 1, label, 0]), check=check)


def test_ignored_labels_are_refused_where_that_many_classes_exist():
    dag = Dag.from_sequential(mlp(120))
    with pytest.raises(ValueError, match="ignore_index"):
        exact_blocks(dag, X, torch.tensor([0, 1, -100, 0]))
    own = Dag.from_sequential(mlp(120), loss=nn.CrossEntropyLoss())
    with pytest.raises(ValueError, match="ignores"):
        exact_blocks(own, X, torch.tensor([0, 1, -100, 0]))


# ------------------------------------------------------------------ S5: guards in half precision


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("training", ["BatchNorm", "functional BatchNorm", "dropout"])
def test_guards_hold_in_half_precision(dtype, training):
    norm = nn.BatchNorm1d(5).to(dtype)
    fn = {
        "BatchNorm": lambda t: torch.tanh(norm(t)),
        "functional BatchNorm": lambda t: torch.tanh(F.batch_norm(t, None, None, training=True)),
        "dropout": lambda t: F.dropout(torch.tanh(t), 0.5),
    }[training]
    with pytest.raises(ValueError, match="'a'"):
        exact_blocks(chain(fn, dtype), X.to(dtype), Y)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_part_without_gradient_counts_as_constant_in_half_precision(dtype):

    def part(t):
        with torch.no_grad():
            moved = torch.tanh(t)
        return moved + t

    expected = exact_blocks(chain(part), X, Y)["h", "h"]
    found = exact_blocks(chain(part, dtype), X.to(dtype), Y)["h", "h"].double()
    assert float((found - expected).norm() / expected.norm()) < 0.05


# ------------------------------------------------------------------ S6: traces


class Scaled(nn.Module):
    """A number that tracing takes for a constant."""

    def __init__(self):
        super().__init__()
        self.linear, self.scale = nn.Linear(5, 5), 1.0

    def forward(self, t):
        return torch.tanh(self.linear(t) * self.scale)


def test_a_small_change_of_a_traced_constant_is_seen():
    module = Scaled()
    dag = chain(module, torch.float32)
    old = exact_blocks(dag, X.float(), Y)["h", "h"]
    module.scale = 1.0005
    new = exact_blocks(dag, X.float(), Y)["h", "h"]
    double = Dag([Node(n.name, n.parents, n.fn) for n in dag.nodes.values()]).to(torch.float64)
    true = exact_blocks(double, X, Y)["h", "h"]
    assert float((new.double() - true).norm() / true.norm()) < 1e-5
    assert float((new - old).norm() / old.norm()) > 3e-4


def test_a_small_step_of_a_weight_norm_written_by_hand_is_seen():
    g, v = torch.ones(5, 1), torch.randn(5, 5, generator=seeded())
    dag = chain(lambda t: torch.tanh(F.linear(t, g * v / v.norm(dim=1, keepdim=True))), torch.float32)
    old = exact_blocks(dag, X.float(), Y)["h", "h"]
    g += 3e-4
    new = exact_blocks(dag, X.float(), Y)["h", "h"]
    assert float((new - old).norm() / old.norm()) > 1e-4


# ------------------------------------------------------------------ S7: weights changed under an operator


def step(net):
    optimiser = torch.optim.SGD(net.parameters(), 0.5)
    F.cross_entropy(net(X), Y).backward()
    optimiser.step()


CHANGES = {
    "load_state_dict": lambda net: net.load_state_dict({k: 0.8 * v for k, v in net.state_dict().items()}),
    "step": step,
    "data": lambda net: setattr(net[0].weight, "data", 0.8 * net[0].weight.data),
    "in place on data": lambda net: net[0].weight.data.mul_(0.8),
    "another parameter": lambda net: setattr(net[0], "weight", nn.Parameter(0.8 * net[0].weight.detach())),
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("part", ["total", "gauss_newton"])
@pytest.mark.parametrize("used", [False, True])
def test_an_operator_refuses_other_weights(name, part, used):
    net = mlp()
    operator = CurvatureOperator(Dag.from_sequential(net), X, Y, part=part)
    if used:
        operator.block("0", "0").dense()
    CHANGES[name](net)
    with pytest.raises(ValueError, match=r"0\.weight has changed.*build a new CurvatureOperator"):
        operator.block("0", "0").dense()


def test_an_operator_refuses_other_weights_in_a_closure_and_other_data():
    w, x = torch.randn(5, 5, dtype=torch.float64), X.clone()
    operator = CurvatureOperator(chain(lambda t: torch.tanh(t @ w)), x, Y)
    operator.block("h", "h").dense()
    w.mul_(2)
    with pytest.raises(ValueError, match="has changed"):
        operator.block("h", "h").dense()
    operator = CurvatureOperator(chain(torch.tanh), x, Y)
    x += 1
    with pytest.raises(ValueError, match="x has changed"):
        operator.block("h", "h").dense()


def test_an_operator_refuses_another_function():
    module = Scaled().double()
    operator = CurvatureOperator(chain(module), X, Y)
    module.scale = 2.0
    with pytest.raises(ValueError, match="not what it was"):
        operator.block("h", "h").dense()


# ------------------------------------------------------------------ S8: backwards without a second derivative


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t):
        ctx.save_for_backward(t)
        return t * torch.sigmoid(t)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        (t,) = ctx.saved_tensors
        s = torch.sigmoid(t)
        return g * (s + t * s * (1 - s))


@pytest.mark.parametrize("measure", [exact_blocks, split_blocks, CurvatureOperator])
def test_a_backward_that_is_differentiable_once_is_refused(measure):
    with pytest.raises(ValueError, match=r"node 'a'.*once_differentiable"):
        found = measure(chain(Swish.apply), X, Y)
        if isinstance(found, CurvatureOperator):
            found.block("h", "h").dense()


def test_gauss_newton_needs_it_once():
    expected = gauss_newton_blocks(chain(F.silu), X, Y)
    assert relative_error(gauss_newton_blocks(chain(Swish.apply), X, Y), expected) < 1e-12
    with pytest.raises(ValueError, match=r"node 'a'.*once_differentiable"):  # its products differentiate J^T u by u
        CurvatureOperator(chain(Swish.apply), X, Y, part="gauss_newton").block("h", "h").dense()


# ------------------------------------------------------------------ S9, S10, S11: scales


@pytest.mark.parametrize("factor", [1e-20, 1e-12, 1.0, 1e12, 1e20])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_ratios_do_not_depend_on_the_scale_of_the_loss(factor, dtype):
    net, x = mlp().to(dtype), X.to(dtype)
    dag = Dag.from_sequential(net, loss=scaled(factor))
    operator = CurvatureOperator(dag, x, Y)
    split = split_blocks(Dag.from_sequential(net), x, Y)
    rank = stable_ranks(operator, PAIR, 200, 50, seeded())["0", "0"]
    truth = stable_rank(split.total["0", "0"])
    assert rank.reason == "" and abs(rank.value - truth) <= 4 * rank.error and rank.error < 0.2 * truth
    c = couplings(operator, [("0", "1")], 200, seeded())["0", "1"]
    norms = {p: resonance(split.total[p]) for p in (("0", "1"), ("0", "0"), ("1", "1"))}
    assert abs(c.value - norms["0", "1"] / math.sqrt(norms["0", "0"] * norms["1", "1"])) <= 4 * c.error
    gap = gn_gaps(dag, x, Y, None, PAIR, 200, seeded())["0", "0"].gap
    exact = block_metrics(split_blocks(dag, x, Y))["gap"][0]
    assert exact == pytest.approx(resonance(split.tensor["0", "0"]) / resonance(split.gauss_newton["0", "0"]), rel=1e-4)
    assert abs(gap.value - exact) <= 4 * gap.error


@pytest.mark.parametrize("factor", [1e-170, 1e160])
def test_ratios_at_the_ends_of_float64(factor):
    dag = Dag.from_sequential(mlp(), loss=scaled(factor))
    operator = CurvatureOperator(dag, X, Y)
    split = split_blocks(Dag.from_sequential(mlp()), X, Y)
    norm = frobenius_norms(operator, PAIR, 200, seeded())["0", "0"]
    assert norm.value == pytest.approx(factor * resonance(split.total["0", "0"]), rel=0.3)
    assert 0 < norm.error < norm.value
    rank = stable_ranks(operator, PAIR, 200, 50, seeded())["0", "0"]
    assert abs(rank.value - stable_rank(split.total["0", "0"])) <= 4 * rank.error
    largest = lanczos_extremes(operator, ["0"], 5, seeded()).largest
    assert largest.value == pytest.approx(factor * float(torch.linalg.eigvalsh(split.total["0", "0"])[-1]), rel=1e-9)
    columns = block_metrics(split_blocks(dag, X, Y))
    assert columns["D"][0] == pytest.approx(stable_rank(split.total["0", "0"]))
    assert columns["R"][0] == pytest.approx(factor * resonance(split.total["0", "0"]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("factor", [1e-20, 1.0, 1e20])
def test_a_tensor_part_of_rounding_alone_has_no_rank(dtype, factor):
    torch.manual_seed(0)
    layers = [nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 5), nn.ReLU(), nn.Linear(5, 3)]
    dag = Dag.from_sequential(nn.Sequential(*layers).to(dtype), loss=scaled(factor))
    operator = CurvatureOperator(dag, X.to(dtype), Y, part="tensor")
    for found in (stable_ranks(operator, PAIR, generator=seeded()), couplings(operator, PAIR, generator=seeded())):
        assert math.isnan(found["0", "0"].value) and "zero" in found["0", "0"].reason


def test_a_small_part_that_is_not_rounding_keeps_its_rank():
    """A tensor part 1e-9 of the whole, in float64."""
    torch.manual_seed(0)
    nearly = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    with torch.no_grad():
        nearly[0].weight.mul_(1e-9)
        nearly[0].bias.fill_(1e-9)
    dag = Dag.from_sequential(nearly)
    operator = CurvatureOperator(dag, X, Y, part="tensor")
    exact = split_blocks(dag, X, Y)
    assert resonance(exact.tensor["0", "0"]) < 1e-7 * resonance(exact.total["0", "0"])
    found = stable_ranks(operator, PAIR, 100, 50, seeded())["0", "0"]
    assert abs(found.value - stable_rank(exact.tensor["0", "0"])) <= 4 * found.error


def test_probes_of_a_node_do_not_depend_on_the_other_pairs():
    operator = CurvatureOperator(Dag.from_sequential(mlp()), X, Y)
    alone = frobenius_norms(operator, [("0", "2")], generator=seeded(5))["0", "2"]
    beside = frobenius_norms(operator, [("1", "1"), ("0", "0"), ("0", "2")], generator=seeded(5))["0", "2"]
    assert alone == beside
    a = stable_ranks(operator, [("0", "2")], generator=seeded(5))["0", "2"]
    b = stable_ranks(operator, [("1", "1"), ("0", "2")], generator=seeded(5))["0", "2"]
    assert a.value == pytest.approx(b.value, rel=1e-12)


# ------------------------------------------------------------------ H1, H2: legal networks


def two(fn):
    return Dag([Node("a", ("input",), torch.tanh), Node("out", ("a", "input"), fn)], loss="mse")


LEGAL = {
    "varargs": two(lambda *h: torch.sin(torch.cat(h, 1))),
    "axis": two(lambda a, b: torch.sin(torch.cat([a, b], axis=1))),
    "keyword list": two(lambda a, b: torch.sin(torch.cat(tensors=[a, b], dim=1))),
    "stack": two(lambda *h: torch.sin(torch.stack(h, 1).sum(1))),
    "in place": chain(nn.SiLU(inplace=True), loss="mse"),
    "in place function": chain(lambda t: t.mul_(2).sin(), loss="mse"),
    "in place on a used parent": Dag(
        [
            Node("a", ("input",), lambda t: torch.tanh(t)),
            Node("b", ("a",), nn.Softplus()),
            Node("c", ("b",), nn.SiLU(inplace=True)),
            Node("out", ("c", "b"), lambda c, b: c * b),
        ],
        loss="mse",
    ),
}


@pytest.mark.parametrize("name", LEGAL)
def test_legal_networks_are_measured(name):
    dag = LEGAL[name]
    y = torch.zeros_like(dag.forward(X)[dag.output])
    expected = dense_hessian(Case("", dag, X, y), dag.order)
    assert relative_error(exact_blocks(dag, X, y), expected) < 1e-10
    operator = CurvatureOperator(dag, X, y)
    assert relative_error({p: operator.block(*p).dense() for p in expected}, expected) < 1e-10


# ------------------------------------------------------------------ H5: the model is left as it was


class Counting(nn.Module):
    """Counts its calls, in a buffer and in a number, and uses the count."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))
        self.number = 0

    def forward(self, h):
        self.calls += 1
        self.number += 1
        return torch.tanh(h) * (1 + self.calls)


@pytest.mark.parametrize("measure", [exact_blocks, CurvatureOperator])
def test_a_refused_call_leaves_the_model_as_it_was(measure):
    norm, counting = nn.BatchNorm1d(5).double(), Counting().double()
    norm.weight.requires_grad_(False)
    mean = torch.zeros(5, dtype=torch.float64)
    for fn in (
        lambda t: norm(t),
        counting,
        lambda t: F.dropout(t, 0.5),
        lambda t: F.batch_norm(t, mean, torch.ones_like(mean), training=True),
    ):
        dag, state = chain(fn), torch.get_rng_state()
        with pytest.raises(ValueError, match="'a'"):
            measure(dag, X, Y)
        assert torch.equal(torch.get_rng_state(), state)
    assert not norm.running_mean.any() and int(norm.num_batches_tracked) == 0 and not mean.any()
    assert norm.training and not norm.weight.requires_grad and norm.bias.requires_grad
    assert float(counting.calls) == 0 and counting.number == 0


def test_an_accepted_call_leaves_the_model_as_it_was():
    class Statistics(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros(()))

        def forward(self, h):
            self.seen += len(h)
            return torch.tanh(h)

    module = Statistics().double()
    dag = chain(module)
    expected = exact_blocks(chain(torch.tanh), X, Y)
    assert relative_error(exact_blocks(dag, X, Y), expected) < 1e-12
    operator = CurvatureOperator(dag, X, Y)
    for _ in range(2):
        assert torch.allclose(operator.block("h", "h").dense(), expected["h", "h"])
        assert torch.allclose(operator.block("h", "out").dense(), expected["h", "out"])
    assert float(module.seen) == 0


# ------------------------------------------------------------------ H6: values that are not finite


def test_values_that_are_not_finite():
    x = X.clone()
    x[1, 2] = math.nan
    for dag in (Dag.from_sequential(mlp()), chain(lambda t: t.sin() ** 2)):
        first = dag.order[0]
        for measure in (exact_blocks, split_blocks):
            with pytest.raises(ValueError, match=r"input.*not finite.*example 1"):
                measure(dag, x, Y)
        operator = CurvatureOperator(dag, x, Y, part="tensor")
        pairs = [(first, first)]
        found = [
            frobenius_norms(operator, pairs)[first, first],
            stable_ranks(operator, pairs)[first, first],
            couplings(operator, pairs)[first, first],
            lanczos_extremes(operator).largest,
            gn_gaps(dag, x, Y, None, pairs)[first, first].gap,
        ]
        for estimate in found:
            assert math.isnan(estimate.value) and math.isnan(estimate.error)
            assert "not finite" in estimate.reason and "example 1" in estimate.reason
    columns = block_metrics(exact_blocks(dag, x, Y, check=False))
    assert math.isnan(columns["D"][0]) and columns["status"][0] == "block is not finite"


def test_a_second_derivative_that_is_not_finite_is_nan_with_a_reason():
    dag = chain(lambda t: (t * 0).abs().add(t.abs() * 0).pow(1.5) + torch.tanh(t))
    operator = CurvatureOperator(dag, X, Y)
    for estimate in (
        frobenius_norms(operator, [("h", "h")])["h", "h"],
        stable_ranks(operator, [("h", "h")])["h", "h"],
        lanczos_extremes(operator).largest,
    ):
        assert math.isnan(estimate.value) and "not finite" in estimate.reason
