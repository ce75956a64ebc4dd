"""Guards before measuring: each makes a measurement that would be wrong an error that says what to
do."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import runner.curvature as rc
from runner.curvature.graphs.checks import exact_elements, plan_chunk
from tests.curvature.cases import MIXING, Swish, X, Y, between, graph, make, mlp, relative_error
from tests.draws import normal, seeded
from tests.errors import refusal

SMALL = X[:, :3].float()


def network(*parts, loss="cross_entropy"):
    return graph(loss, body=("input", nn.Sequential(*parts)), out=("body", nn.Linear(3, 3)))


def loss_of(fn):
    return lambda: rc.exact_blocks(network(nn.Tanh(), loss=fn), SMALL, Y)


def of_layer(layer, **options):
    return lambda: rc.exact_blocks(network(layer), SMALL, Y, **options)


def wide():
    return rc.exact_blocks(
        graph(wide=("input", nn.Linear(3, 1_000_000)), out=("wide", nn.Linear(1_000_000, 3))),
        SMALL,
        Y,
    )


BEFORE_MEASURING = {
    "BatchNorm": (of_layer(nn.BatchNorm1d(3)), "mixes the examples.*BatchNorm1d, call .eval"),
    "no statistics": (
        of_layer(nn.BatchNorm1d(3, track_running_stats=False).eval()),
        "mixes the examples.*BatchNorm1d",
    ),
    "dropout": (of_layer(nn.Dropout(0.5)), "not deterministic.*Dropout, call .eval"),
    "randomness": (
        lambda: rc.exact_blocks(between(lambda h: F.dropout(h, 0.5)), X, Y),
        "'a' is not deterministic",
    ),
    "sum": (
        loss_of(lambda f, y: F.cross_entropy(f, y, reduction="sum")),
        r"looks like a sum.*mean over the examples",
    ),
    "no mean": (
        loss_of(lambda f, y: F.cross_entropy(f, y) + f.mean(0).square().sum()),
        "not the mean",
    ),
    "random loss": (
        loss_of(lambda f, y: F.cross_entropy(f, y) * torch.rand(())),
        "not deterministic",
    ),
    "loss of rows": (loss_of(lambda f, y: f), "one value per example"),
    "targets": (
        lambda: rc.exact_blocks(network(nn.Tanh()), SMALL, Y[:2]),
        "as many targets as examples",
    ),
    "empty": (lambda: rc.exact_blocks(network(nn.Tanh()), SMALL[:0], Y[:0]), "empty"),
    "rows": (lambda: rc.exact_blocks(between(lambda h: h.sum(1)), X, Y), "one row per example"),
    "memory": (wide, r"TiB.*inter_layer_metrics"),
    "budget": (of_layer(nn.Tanh(), memory_budget=100), "memory_budget"),
    "class of a loss": (
        lambda: rc.Dag.from_sequential(mlp(), loss=nn.MSELoss),
        r"found the class MSELoss: pass an instance, MSELoss\(\)",
    ),
    "transposed": (
        lambda: rc.exact_blocks(
            graph("mse", out=("input", nn.Tanh())), torch.ones(2, 3, 4), torch.ones(2, 4, 3)
        ),
        r"\(2, 4, 3\) does not match the output's \(2, 3, 4\)",
    ),
    "groups of verify": (
        lambda: rc.verify(
            torch.eye(3), at=torch.ones(3), gradient=lambda t: t, groups={"a": slice(2)}
        ),
        "cover the 3 numbers",
    ),
    "complex": (
        lambda: rc.exact_blocks(
            graph(
                "mse",
                f=("input", torch.fft.rfft),
                out=("f", lambda t: torch.fft.irfft(t * t.abs())),
            ),
            X,
            X,
        ),
        r"'f' holds .* complex128.*comes back to real numbers",
    ),
    "meta": (
        lambda: rc.exact_blocks(between(nn.Linear(5, 5, device="meta")), X, Y),
        "'a' has weights on the meta",
    ),
    "list": (
        lambda: rc.exact_blocks(between(torch.tanh), X, Y.tolist()),
        "expected a tensor for y, found list",
    ),
    "array": (
        lambda: rc.CurvatureOperator(between(torch.tanh), X.numpy(), Y),
        "expected a tensor for x, found ndarray",
    ),
    "unknown node": (
        lambda: rc.exact_blocks(rc.Dag.from_sequential(mlp()), X, Y, "fc"),
        r"unknown nodes \['fc'\]",
    ),
}


@pytest.mark.parametrize("name", BEFORE_MEASURING)
def test_what_would_be_wrong_is_refused_before_measuring(name):
    measured, message = BEFORE_MEASURING[name]
    with refusal(message):
        measured()


def test_evaluation_mode_is_measured():
    modules = nn.BatchNorm1d(3).eval(), nn.Dropout(0.5).eval(), nn.Dropout(0.0)
    assert (
        rc.exact_blocks(network(nn.Linear(3, 3), *modules), SMALL, Y)["body", "body"]
        .isfinite()
        .all()
    )


def test_chunks_shrink_with_the_budget():
    dag = make("chain").dag
    sizes, nodes = {"input": 5, "a": 4, "b": 6, "c": 3, "out": 4}, dag.order
    working, result = exact_elements(dag, sizes, nodes)
    assert plan_chunk(dag, sizes, nodes, 10, 8, 8 * (result + 3 * working)) == 3
    assert plan_chunk(dag, sizes, nodes, 10, 8, 8 * (result + 300 * working)) == 10
    with refusal("over the budget"):
        plan_chunk(dag, sizes, nodes, 10, 8, 8 * (result + working) - 1)
    with refusal("over the budget"):
        plan_chunk(dag, sizes, nodes, 10, 8, 8 * (result + 3 * working), per_example=True)


def attention_with_a_fused_kernel():
    def attend(h):
        return F.scaled_dot_product_attention(
            h.unsqueeze(1), h.unsqueeze(1), h.unsqueeze(1)
        ).squeeze(1)

    return rc.Dag.from_sequential(
        [nn.Linear(2, 8), attend, nn.Flatten()], loss=lambda f, y: f.square().mean(1)
    )


def block_of(measure, dag, x, y, pair=("h", "h")):
    """A measurement, of an operator one of its blocks."""
    found = measure(dag, x, y)
    return found.block(*pair).dense() if isinstance(found, rc.CurvatureOperator) else found


def test_a_fused_kernel_has_a_gauss_newton_matrix_and_no_hessian():
    x, dag = torch.randn(2, 3, 2), attention_with_a_fused_kernel()
    for measure in (rc.exact_blocks, rc.split_blocks, rc.CurvatureOperator):
        with refusal(r"SDPBackend\.MATH"):
            block_of(measure, dag, x, x, ("0", "0"))
    fused = rc.gauss_newton_blocks(dag, x, x)
    with sdpa_kernel(SDPBackend.MATH):
        assert torch.allclose(
            fused["0", "0"], rc.split_blocks(dag, x, x).gauss_newton["0", "0"], atol=1e-6
        )


# ------------------------------------------------------------------ examples that mix


@pytest.mark.parametrize("name", MIXING)
def test_examples_that_mix_are_refused(name):
    with refusal("node 'a'"):
        rc.exact_blocks(between(MIXING[name]), X, Y)


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


@pytest.mark.parametrize("name", SPARINGLY)
def test_examples_that_mix_sparingly_are_refused_in_batches_of_any_size(name):
    for examples in (2, 3, 9, 33):
        for seed in range(2):
            x = normal(examples, 6, generator=seeded(seed))
            with refusal("'a' mixes the examples"):
                rc.exact_blocks(between(SPARINGLY[name]), x, torch.arange(examples) % 3)


def test_equal_halves_and_a_single_example_hide_no_mixing():
    twice = torch.cat([X[:2], X[:2]])
    for name, x, y in (("batch statistics", twice, Y), ("cumsum", X[:1], Y[:1])):
        with refusal("'a' mixes the examples"):
            rc.CurvatureOperator(between(MIXING[name]), x, y)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_guards_hold_in_half_precision(dtype):
    """While tracing, or before measuring, where one example more changes less than half precision
    tells."""
    norm = nn.BatchNorm1d(5).to(dtype)
    for fn in (
        lambda t: torch.tanh(norm(t)),
        MIXING["batch statistics"],
        lambda t: F.dropout(torch.tanh(t), 0.5),
    ):
        with refusal("'a'"):
            rc.exact_blocks(between(fn, dtype), X.to(dtype), Y)


# ------------------------------------------------------------------ losses and labels


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("batch", [1, 4])
def test_a_summed_loss_is_refused_however_small(dtype, batch):
    net, x = mlp().to(dtype), X[:batch].to(dtype)
    with torch.no_grad():  # logits so far apart that every loss is about 1e-6 or below
        net[2].weight.mul_(0)
        net[2].bias.copy_(torch.tensor([14.0, 0, 0]))
    y = torch.zeros(batch, dtype=torch.long)
    with refusal("looks like a sum"):
        rc.exact_blocks(
            rc.Dag.from_sequential(net, loss=nn.CrossEntropyLoss(reduction="sum")), x, y
        )
    mean = rc.exact_blocks(rc.Dag.from_sequential(net, loss=nn.CrossEntropyLoss()), x, y)
    named = rc.exact_blocks(rc.Dag.from_sequential(net), x, y)
    assert relative_error(mean, named) < 1e-4


def test_a_summed_loss_of_a_perfect_fit_is_refused():
    dag = between(torch.tanh, loss=nn.MSELoss(reduction="sum"))
    target = dag.forward(X)["out"].detach()
    with refusal("not the mean"):
        rc.exact_blocks(dag, X, target)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32, torch.bool])
def test_labels_of_any_integer_type(dtype):
    """A uint8 or boolean tensor as an index is a mask: B = K makes that silent."""
    y = torch.tensor([1, 0, 1])
    dag = rc.Dag.from_sequential(mlp())
    expected = rc.exact_blocks(dag, X[:3], y)
    found = rc.exact_blocks(dag, X[:3], y.to(dtype))
    assert all(torch.equal(found[pair], expected[pair]) for pair in expected)
    product = rc.CurvatureOperator(dag, X[:3], y.to(dtype)).block("0", "0").dense()
    assert torch.allclose(product, expected["0", "0"])


@pytest.mark.parametrize("label", [-1, -100, 3, 255])
def test_labels_out_of_range_are_refused(label):
    for measure in (rc.exact_blocks, rc.CurvatureOperator):
        for check in (True, False):
            with refusal(rf"expected classes 0 to 2, found {label} for example 2"):
                measure(
                    rc.Dag.from_sequential(mlp()), X, torch.tensor([0, 1, label, 0]), check=check
                )


def test_ignored_labels_are_refused_where_that_many_classes_exist():
    for loss, message in (("cross_entropy", "ignore_index"), (nn.CrossEntropyLoss(), "ignores")):
        with refusal(message):
            rc.exact_blocks(
                rc.Dag.from_sequential(mlp(120), loss=loss), X, torch.tensor([0, 1, -100, 0])
            )


# ------------------------------------------------------------ backwards without a second derivative


@pytest.mark.parametrize(
    "measure", [rc.exact_blocks, rc.split_blocks, rc.CurvatureOperator, rc.inter_layer_metrics]
)
def test_a_backward_that_is_differentiable_once_is_refused(measure):
    with refusal(r"node 'a'.*once_differentiable"):
        block_of(measure, between(Swish.apply), X, Y)


def test_gauss_newton_needs_it_once():
    expected = rc.gauss_newton_blocks(between(F.silu), X, Y)
    assert relative_error(rc.gauss_newton_blocks(between(Swish.apply), X, Y), expected) < 1e-12
    with refusal(r"node 'a'.*once_differentiable"):  # its products differentiate J^T u by u
        rc.CurvatureOperator(between(Swish.apply), X, Y, part="gauss_newton").block(
            "h", "h"
        ).dense()


# -------------------------------------------------- mistakes: one line with the node and what to do

SEQUENTIAL, SMOOTH = rc.Dag.from_sequential(mlp()), between(torch.tanh)
EMBEDDING = rc.Dag.from_sequential(
    [nn.Embedding(7, 3).double(), lambda h: torch.tanh(h[:, 0])], names=["embed", "out"]
)
TOKENS = torch.randint(0, 7, (4, 2), generator=seeded())


def under(loss):
    return between(torch.tanh, loss=loss), X, Y


MISTAKES = {
    "module": ((mlp(), X, Y), r"expected a Dag, found Sequential.*from_sequential.*LayerOperator"),
    "dtype": ((SEQUENTIAL, X.float(), Y), r"node '0' failed on \(4, 6\) float32.*one dtype"),
    "width": ((SEQUENTIAL, X[:, :4], Y), r"node '0' failed on \(4, 4\) float64.*Check the widths"),
    "dtype of a node": ((between(nn.Linear(5, 5)), X, Y), r"node 'a' failed.*one dtype"),
    "arguments": (
        (between(lambda a, b: a), X, Y),
        r"node 'a' failed.*one argument for each parent",
    ),
    "error": ((between(lambda a: {}["missing"]), X, Y), r"node 'a' failed.*KeyError"),
    "tuple": ((between(lambda t: (t, t)), X, Y), r"'a' returned a tuple.*\[0\]"),
    "dict": ((between(lambda t: {"logits": t}), X, Y), r"'a' returned a dict.*\['logits'\]"),
    "number": ((between(lambda t: 3.0), X, Y), "'a' returned a float"),
    "scalar": ((between(lambda t: t.sum()), X, Y), r"'a' returned shape \(\)"),
    "four examples": (
        (between(lambda t: torch.tanh(t.view(4, 5).add(torch.zeros(4, 1)))), X, Y),
        r"node 'a' failed.*must take any number",
    ),
    "float loss": (
        under(lambda f, y: float(F.cross_entropy(f, y))),
        "the loss returned a float: expected a tensor",
    ),
    "cut loss": (
        under(lambda f, y: F.cross_entropy(f.detach(), y)),
        "does not depend on the output",
    ),
    "failing loss": (
        under(lambda f, y: F.cross_entropy(f, y[:, None, None])),
        "the loss failed on output",
    ),
    "loss of one": (under(lambda f: f.sum(1)), r"the loss failed.*loss\(output, target\)"),
    "shape of squares": (
        (between(torch.tanh, loss="mse"), X, torch.zeros(4, 2, dtype=torch.float64)),
        r"mse: target shape \(4, 2\) does not match the output's \(4, 3\)",
    ),
    "shape of labels": (
        (SMOOTH, X, Y[:, None]),
        r"cross_entropy: expected class indices of shape \(4,\)",
    ),
    "type of labels": ((SMOOTH, X, Y.double()), "integer type, or probabilities"),
    "tokens": (
        (EMBEDDING, TOKENS, Y, ["input", "embed"]),
        r"node 'input' holds \(4, 2\) int64.*Measure the nodes after it",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
@pytest.mark.parametrize("measure", [rc.exact_blocks, rc.CurvatureOperator])
def test_mistakes_name_the_node_in_one_line(measure, name):
    given, message = MISTAKES[name]
    for check in (True, False) if name in ("dtype", "width") else (True,):
        with pytest.raises(ValueError, match=message) as caught:
            found = measure(*given, check=check)
            if isinstance(found, rc.CurvatureOperator):
                found.block("h", "h").dense()
        assert "\n" not in str(caught.value) and len(str(caught.value)) < 400


def test_one_node_may_be_named_alone_and_tokens_are_measured():
    assert set(rc.exact_blocks(SEQUENTIAL, X, Y, "0")) == {("0", "0")}
    assert rc.CurvatureOperator(SEQUENTIAL, X, Y, "0").nodes == ("0",)
    assert rc.exact_blocks(EMBEDDING, TOKENS, Y)["embed", "embed"].isfinite().all()


def test_integer_targets_of_a_regression():
    dag = between(torch.tanh, loss="mse", outputs=1)
    a, b = rc.exact_blocks(dag, X, Y), rc.exact_blocks(dag, X, Y.double())
    assert all(torch.equal(a[pair], b[pair]) for pair in a)


def test_autocast_is_off_in_products():
    operator = rc.CurvatureOperator(between(torch.tanh, torch.float32), X.float(), Y)
    expected = operator.block("h", "h").dense()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(operator.block("h", "h").dense(), expected)


def test_weights_made_in_inference_mode_say_so():
    with torch.inference_mode():
        net = mlp()
    with refusal(r"'0' failed.*inference_mode"):
        rc.CurvatureOperator(rc.Dag.from_sequential(net), X, Y, ["input"])
