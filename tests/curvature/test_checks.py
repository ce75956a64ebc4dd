"""Guards before measuring: each makes a measurement that would be wrong an error that says what to do."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from runner.curvature import (
    CurvatureOperator,
    Dag,
    Node,
    couplings,
    exact_blocks,
    frobenius_norms,
    gauss_newton_blocks,
    gn_gaps,
    inter_layer_metrics,
    lanczos_extremes,
    spectral_norms,
    split_blocks,
    stable_ranks,
    trace_module,
)
from runner.curvature.exact.checks import exact_elements, plan_chunk
from tests.curvature.cases import MIXING, PAIR, Own, Swish, X, Y, between, make, mlp, relative_error, seeded

SMALL = X[:, :3].float()


def network(*parts, loss="cross_entropy"):
    return Dag([Node("body", ("input",), nn.Sequential(*parts)), Node("out", ("body",), nn.Linear(3, 3))], loss)


@pytest.mark.parametrize(
    ("module", "message"),
    [(nn.BatchNorm1d(3), "BatchNorm1d normalises by the batch"), (nn.Dropout(0.5), "Dropout is in training mode")],
)
def test_training_mode_is_refused(module, message):
    with pytest.raises(ValueError, match=message):
        exact_blocks(network(nn.Linear(3, 3), module.train()), SMALL, Y)


@pytest.mark.parametrize("module", [nn.BatchNorm1d(3).eval(), nn.Dropout(0.5).eval(), nn.Dropout(0.0)])
def test_evaluation_mode_is_measured(module):
    assert exact_blocks(network(nn.Linear(3, 3), module), SMALL, Y)["body", "body"].isfinite().all()


def test_batch_norm_without_running_statistics_is_refused():
    with pytest.raises(ValueError, match="normalises by the batch"):
        exact_blocks(network(nn.BatchNorm1d(3, track_running_stats=False).eval()), SMALL, Y)


def test_randomness_is_refused():
    dag = Dag([Node("a", ("input",), lambda h: F.dropout(h, 0.5)), Node("out", ("a",), nn.Linear(3, 3))])
    with pytest.raises(ValueError, match="'a' is not deterministic"):
        exact_blocks(dag, SMALL, Y)


def test_a_loss_that_is_not_a_mean_is_refused():
    with pytest.raises(ValueError, match=r"looks like a sum.*mean over the examples"):
        exact_blocks(network(nn.Tanh(), loss=lambda f, y: F.cross_entropy(f, y, reduction="sum")), SMALL, Y)
    with pytest.raises(ValueError, match="not the mean"):
        exact_blocks(network(nn.Tanh(), loss=lambda f, y: F.cross_entropy(f, y) + f.mean(0).square().sum()), SMALL, Y)
    with pytest.raises(ValueError, match="not deterministic"):
        exact_blocks(network(nn.Tanh(), loss=lambda f, y: F.cross_entropy(f, y) * torch.rand(())), SMALL, Y)
    with pytest.raises(ValueError, match="one value per example"):
        exact_blocks(network(nn.Tanh(), loss=lambda f, y: f), SMALL, Y)


def test_batches_are_checked():
    with pytest.raises(ValueError, match="as many targets as examples"):
        exact_blocks(network(nn.Tanh()), SMALL, Y[:2])
    with pytest.raises(ValueError, match="empty"):
        exact_blocks(network(nn.Tanh()), SMALL[:0], Y[:0])


def test_over_the_memory_budget_names_the_estimators():
    wide = Dag([Node("wide", ("input",), nn.Linear(3, 1_000_000)), Node("out", ("wide",), nn.Linear(1_000_000, 3))])
    with pytest.raises(ValueError, match=r"TiB.*frobenius_norms.*spectral_norms.*lanczos_extremes"):
        exact_blocks(wide, SMALL, Y)
    with pytest.raises(ValueError, match="memory_budget"):
        exact_blocks(network(nn.Tanh()), SMALL, Y, memory_budget=100)


def test_chunks_shrink_with_the_budget():
    dag = make("chain").dag
    sizes, nodes = {"input": 5, "a": 4, "b": 6, "c": 3, "out": 4}, dag.order
    working, result = exact_elements(dag, sizes, nodes)
    assert plan_chunk(dag, sizes, nodes, 10, 8, 8 * (result + 3 * working)) == 3
    assert plan_chunk(dag, sizes, nodes, 10, 8, 8 * (result + 300 * working)) == 10
    with pytest.raises(ValueError, match="over the budget"):
        plan_chunk(dag, sizes, nodes, 10, 8, 8 * (result + working) - 1)
    with pytest.raises(ValueError, match="over the budget"):
        plan_chunk(dag, sizes, nodes, 10, 8, 8 * (result + 3 * working), per_example=True)


def attention_with_a_fused_kernel():
    def attend(h):
        return F.scaled_dot_product_attention(h.unsqueeze(1), h.unsqueeze(1), h.unsqueeze(1)).squeeze(1)

    return Dag(
        [
            Node("h", ("input",), nn.Linear(2, 8)),
            Node("attend", ("h",), attend),
            Node("out", ("attend",), nn.Flatten()),
        ],
        loss=lambda f, y: f.square().mean(1),
    )


@pytest.mark.parametrize("measure", [exact_blocks, split_blocks, CurvatureOperator])
def test_a_fused_kernel_without_second_derivative_is_refused(measure):
    x = torch.randn(2, 3, 2)
    with pytest.raises(ValueError, match=r"SDPBackend\.MATH"):
        result = measure(attention_with_a_fused_kernel(), x, x)
        if isinstance(result, CurvatureOperator):
            result.block("h", "h").dense()


def test_gauss_newton_needs_no_second_derivative_of_a_fused_kernel():
    from torch.nn.attention import SDPBackend, sdpa_kernel

    x = torch.randn(2, 3, 2)
    dag = attention_with_a_fused_kernel()
    fused = gauss_newton_blocks(dag, x, x)
    with sdpa_kernel(SDPBackend.MATH):
        assert torch.allclose(fused["h", "h"], split_blocks(dag, x, x).gauss_newton["h", "h"], atol=1e-6)


# ------------------------------------------------------------------ examples that mix


@pytest.mark.parametrize("name", MIXING)
def test_examples_that_mix_are_refused(name):
    with pytest.raises(ValueError, match="node 'a'"):
        exact_blocks(between(MIXING[name]), X, Y)


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


@pytest.mark.parametrize("examples", [2, 3, 9, 33])
@pytest.mark.parametrize("name", SPARINGLY)
def test_examples_that_mix_sparingly_are_refused_in_batches_of_any_size(name, examples):
    for seed in range(2):
        x = torch.randn(examples, 6, generator=seeded(seed), dtype=torch.float64)
        with pytest.raises(ValueError, match="'a' mixes the examples"):
            exact_blocks(between(SPARINGLY[name]), x, torch.arange(examples) % 3)


def test_batch_norm_is_refused_when_both_halves_are_equal():
    twice = torch.cat([X[:2], X[:2]])
    dag = between(lambda t: torch.tanh(F.batch_norm(t, None, None, training=True)))
    with pytest.raises(ValueError, match="'a' mixes the examples"):
        exact_blocks(dag, twice, Y)


def test_one_example_that_mixes_with_its_own_copies_is_refused():
    with pytest.raises(ValueError, match="'a' mixes the examples"):
        CurvatureOperator(between(MIXING["cumsum"]), X[:1], Y[:1])


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
        exact_blocks(between(fn, dtype), X.to(dtype), Y)


def mixed():
    parts = {"a": nn.Linear(6, 5), "b": nn.Linear(5, 5), "c": nn.Linear(5, 3)}
    return Own(lambda m, t: m.c(torch.tanh(m.b(m.a(t))) + 0.5 * m.a(t).mean(0)), **parts)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("seed", range(3))
def test_examples_that_mix_are_refused_in_half_precision(dtype, seed):
    """While tracing, or before measuring, where one example more changes less than half precision tells."""
    torch.manual_seed(seed)
    module = mixed().to(dtype)
    with pytest.raises(ValueError, match="mixes the examples"):
        dag = trace_module(module, "cross_entropy", (torch.randn(4, 6).to(dtype), Y))
        exact_blocks(dag, dag.x, dag.y)


# ------------------------------------------------------------------ losses and labels


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
    dag = between(torch.tanh, loss=nn.MSELoss(reduction="sum"))
    target = dag.forward(X)["out"].detach()
    with pytest.raises(ValueError, match="not the mean"):
        exact_blocks(dag, X, target)


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


# ------------------------------------------------------------------ backwards without a second derivative


@pytest.mark.parametrize("measure", [exact_blocks, split_blocks, CurvatureOperator, inter_layer_metrics])
def test_a_backward_that_is_differentiable_once_is_refused(measure):
    with pytest.raises(ValueError, match=r"node 'a'.*once_differentiable"):
        found = measure(between(Swish.apply), X, Y)
        if isinstance(found, CurvatureOperator):
            found.block("h", "h").dense()


def test_gauss_newton_needs_it_once():
    expected = gauss_newton_blocks(between(F.silu), X, Y)
    assert relative_error(gauss_newton_blocks(between(Swish.apply), X, Y), expected) < 1e-12
    with pytest.raises(ValueError, match=r"node 'a'.*once_differentiable"):  # its products differentiate J^T u by u
        CurvatureOperator(between(Swish.apply), X, Y, part="gauss_newton").block("h", "h").dense()


# ------------------------------------------------------------------ mistakes: one line with the node and what to do

BOTH = pytest.mark.parametrize("measure", [exact_blocks, CurvatureOperator])


@BOTH
def test_a_model_instead_of_a_graph(measure):
    with pytest.raises(ValueError, match=r"expected a Dag, found Sequential.*from_sequential.*trace_module"):
        measure(mlp(), X, Y)
    with pytest.raises(ValueError, match=r"expected an nn.Sequential.*found Linear"):
        Dag.from_sequential(nn.Linear(2, 2))


@BOTH
@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize(
    ("x", "message"),
    [
        (X.float(), r"node '0' failed on \(4, 6\) float32.*one dtype"),
        (X[:, :4], r"node '0' failed on \(4, 4\) float64.*Check the widths"),
    ],
)
def test_inputs_that_do_not_fit_name_the_node(measure, check, x, message):
    with pytest.raises(ValueError, match=message):
        measure(Dag.from_sequential(mlp()), x, Y, check=check)


@BOTH
def test_a_node_of_another_dtype_or_number_of_arguments_is_named(measure):
    with pytest.raises(ValueError, match=r"node 'a' failed.*one dtype"):
        measure(between(nn.Linear(5, 5)), X, Y)
    with pytest.raises(ValueError, match=r"node 'a' failed.*one argument for each parent"):
        measure(between(lambda a, b: a), X, Y)
    with pytest.raises(ValueError, match=r"node 'a' failed.*KeyError"):
        measure(between(lambda a: {}["missing"]), X, Y)


@BOTH
@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (lambda t: (t, t), r"'a' returned a tuple.*\[0\]"),
        (lambda t: {"logits": t}, r"'a' returned a dict.*\['logits'\]"),
        (lambda t: 3.0, "'a' returned a float"),
        (lambda t: t.sum(), r"'a' returned shape \(\)"),
    ],
)
def test_a_node_that_returns_no_tensor_is_named(measure, fn, message):
    with pytest.raises(ValueError, match=message):
        measure(between(fn), X, Y)


def test_one_node_may_be_named_alone():
    dag = Dag.from_sequential(mlp(), names=["fc1", "act", "fc2"])
    assert set(exact_blocks(dag, X, Y, "fc1")) == {("fc1", "fc1")}
    assert CurvatureOperator(dag, X, Y, "fc1").nodes == ("fc1",)
    with pytest.raises(ValueError, match=r"unknown nodes \['fc'\]"):
        exact_blocks(dag, X, Y, "fc")


@pytest.mark.parametrize("estimate", [frobenius_norms, spectral_norms, stable_ranks, couplings])
@pytest.mark.parametrize("pairs", [[("0", "q")], [("q", "0")], ["00"], [("0",)], "00"])
def test_unknown_pairs(estimate, pairs):
    operator = CurvatureOperator(Dag.from_sequential(mlp()), X, Y)
    with pytest.raises(ValueError, match=r"expected pairs \(v, w\).*'0', '1', '2'"):
        estimate(operator, pairs)


def test_numbers_of_steps():
    operator = CurvatureOperator(Dag.from_sequential(mlp()), X, Y)
    with pytest.raises(ValueError, match="at least 1 Lanczos step"):
        lanczos_extremes(operator, steps=0)
    with pytest.raises(ValueError, match="expected nodes of the operator"):
        lanczos_extremes(operator, ["q"])
    with pytest.raises(ValueError, match="at least 1 iteration"):
        spectral_norms(operator, PAIR, 0)
    with pytest.raises(ValueError, match="at least 2 probes"):
        gn_gaps(operator.dag, X, Y, None, PAIR, 1)


@BOTH
@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (lambda f, y: float(F.cross_entropy(f, y)), "the loss returned a float: expected a tensor"),
        (lambda f, y: F.cross_entropy(f.detach(), y), "does not depend on the output"),
        (lambda f, y: F.cross_entropy(f, y[:, None, None]), "the loss failed on output"),
        (lambda f: f.sum(1), r"the loss failed.*loss\(output, target\)"),
    ],
)
def test_losses_that_are_none(measure, loss, message):
    with pytest.raises(ValueError, match=message):
        found = measure(between(torch.tanh, loss=loss), X, Y)
        if isinstance(found, CurvatureOperator):
            found.block("h", "h").dense()


def test_the_class_of_a_loss():
    with pytest.raises(ValueError, match=r"found the class MSELoss: pass an instance, MSELoss\(\)"):
        Dag.from_sequential(mlp(), loss=nn.MSELoss)


@BOTH
def test_targets_of_a_bad_shape(measure):
    with pytest.raises(ValueError, match=r"mse: target shape \(4, 2\) does not match the output's \(4, 3\)"):
        measure(between(torch.tanh, loss="mse"), X, torch.zeros(4, 2, dtype=torch.float64))
    with pytest.raises(ValueError, match=r"cross_entropy: expected class indices of shape \(4,\)"):
        measure(between(torch.tanh), X, Y[:, None])
    with pytest.raises(ValueError, match="integer type, or probabilities"):
        measure(between(torch.tanh), X, Y.double())


def test_integer_targets_of_a_regression():
    dag = between(torch.tanh, loss="mse", outputs=1)
    a, b = exact_blocks(dag, X, Y), exact_blocks(dag, X, Y.double())
    assert all(torch.equal(a[pair], b[pair]) for pair in a)


@BOTH
def test_integers_have_no_derivatives(measure):
    dag = Dag(
        [Node("embed", ("input",), nn.Embedding(7, 3).double()), Node("out", ("embed",), lambda h: torch.tanh(h[:, 0]))]
    )
    tokens = torch.randint(0, 7, (4, 2), generator=seeded())
    with pytest.raises(ValueError, match=r"node 'input' holds \(4, 2\) int64.*Measure the nodes after it"):
        measure(dag, tokens, Y, ["input", "embed"])
    measure(dag, tokens, Y)


@BOTH
def test_autocast_is_refused(measure):
    dag = between(torch.tanh, torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16), pytest.raises(ValueError, match=r"autocast is on.*outside"):
        measure(dag, X.float(), Y)
    operator = CurvatureOperator(dag, X.float(), Y)
    with torch.autocast("cpu", dtype=torch.bfloat16), pytest.raises(ValueError, match="autocast is on"):
        operator.block("h", "h").dense()


def test_weights_made_in_inference_mode_say_so():
    with torch.inference_mode():
        net = mlp()
    with pytest.raises(ValueError, match=r"'0' failed.*inference_mode"):
        CurvatureOperator(Dag.from_sequential(net), X, Y, ["input"])


def test_gaps_of_an_operator_are_those_of_its_graph():
    dag = Dag.from_sequential(mlp())
    operator = CurvatureOperator(dag, X, Y, part="tensor")
    a = gn_gaps(dag, X, Y, None, PAIR, 10, seeded())["0", "0"]
    b = gn_gaps(operator, PAIR, probes=10, generator=seeded())["0", "0"]
    assert a.gap == b.gap
    with pytest.raises(ValueError, match=r'operator of part="tensor"'):
        gn_gaps(CurvatureOperator(dag, X, Y), PAIR)
    with pytest.raises(ValueError, match="needs the batch"):
        gn_gaps(dag, pairs=PAIR)


@BOTH
def test_a_fixed_number_of_examples(measure):
    with pytest.raises(ValueError, match=r"node 'a' failed.*must take any number"):
        measure(between(lambda t: torch.tanh(t.view(4, 5).add(torch.zeros(4, 1)))), X, Y)


def test_messages_are_one_line():
    with pytest.raises(ValueError) as caught:
        split_blocks(between(nn.Linear(7, 5).double()), X, Y)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400
