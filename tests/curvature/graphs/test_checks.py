"""Guards before measuring: each makes a measurement that would be wrong an error that says what to
do."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import runner.curvature as rc
from runner.curvature.graphs.memory import exact_elements, require_room
from tests.curvature.cases import (
    MIXING,
    Swish,
    X,
    Y,
    between,
    graph,
    make,
    mlp,
    node_operator,
    relative_error,
)
from tests.draws import normal, seeded
from tests.errors import refusal

SMALL = X[:, :3].float()
SUMMED, MEAN = nn.CrossEntropyLoss(reduction="sum"), nn.CrossEntropyLoss()


def blocks_of(*layers, loss="cross_entropy", x=SMALL, y=Y, **options):
    """Of a body of these layers and a linear head."""
    body = nn.Sequential(*layers)
    dag = graph(loss, body=("input", body), out=("body", nn.Linear(3, 3)))
    return rc.exact_blocks(dag, x, y, **options)


def sequential(loss="cross_entropy", outputs=3):
    return rc.Dag.from_sequential(mlp(outputs), loss=loss)


def test_modules_in_training_mode_are_refused_and_in_evaluation_mode_measured():
    with refusal("mixes the examples.*BatchNorm1d, call .eval"):
        blocks_of(nn.BatchNorm1d(3))
    with refusal("mixes the examples.*BatchNorm1d"):
        blocks_of(nn.BatchNorm1d(3, track_running_stats=False).eval())
    with refusal("not deterministic.*Dropout, call .eval"):
        blocks_of(nn.Dropout(0.5))
    with refusal("'a' is not deterministic"):
        rc.exact_blocks(between(lambda h: F.dropout(h, 0.5)), X, Y)
    layers = nn.Linear(3, 3), nn.BatchNorm1d(3).eval(), nn.Dropout(0.5).eval(), nn.Dropout(0.0)
    assert blocks_of(*layers)["body", "body"].isfinite().all()


def test_losses_that_are_no_mean_over_the_examples_are_refused():
    with refusal(r"looks like a sum.*mean over the examples"):
        blocks_of(loss=lambda f, y: F.cross_entropy(f, y, reduction="sum"))
    with refusal("not the mean"):
        blocks_of(loss=lambda f, y: F.cross_entropy(f, y) + f.mean(0).square().sum())
    with refusal("not deterministic"):
        blocks_of(loss=lambda f, y: F.cross_entropy(f, y) * torch.rand(()))
    with refusal("one value per example"):
        blocks_of(loss=lambda f, y: f)
    with refusal(r"found the class MSELoss: pass an instance, MSELoss\(\)"):
        sequential(nn.MSELoss)


def test_data_that_do_not_fit_are_refused():
    with refusal("as many targets as examples"):
        blocks_of(y=Y[:2])
    with refusal("empty"):
        blocks_of(x=SMALL[:0], y=Y[:0])
    with refusal("one row per example"):
        rc.exact_blocks(between(lambda h: h.sum(1)), X, Y)
    with refusal(r"\(2, 4, 3\) does not match the output's \(2, 3, 4\)"):
        images = torch.ones(2, 3, 4)
        rc.exact_blocks(graph("mse", out=("input", nn.Tanh())), images, images.mT)
    with refusal("expected a tensor for y, found list"):
        rc.exact_blocks(between(torch.tanh), X, Y.tolist())
    with refusal("expected a tensor for x, found ndarray"):
        rc.graph_metrics(between(torch.tanh), X.numpy(), Y)
    with refusal(r"unknown nodes \['fc'\]"):
        rc.exact_blocks(sequential(), X, Y, "fc")


def test_what_takes_too_much_memory_is_refused():
    layers = nn.Linear(3, 1_000_000), nn.Linear(1_000_000, 3)
    with refusal(r"TiB.*graph_metrics"):
        rc.exact_blocks(rc.Dag.from_sequential(layers), SMALL, Y)
    with refusal("memory_budget"):
        blocks_of(nn.Tanh(), memory_budget=100)


def test_complex_nodes_and_weights_without_values_are_refused():
    back = lambda t: torch.fft.irfft(t * t.abs())  # noqa: E731
    with refusal(r"'f' holds .* complex128.*comes back to real numbers"):
        rc.exact_blocks(graph("mse", f=("input", torch.fft.rfft), out=("f", back)), X, X)
    with refusal("'a' has weights on the meta"):
        rc.exact_blocks(between(nn.Linear(5, 5, device="meta")), X, Y)


@refusal("cover the 3 numbers")
def test_groups_that_leave_numbers_out_are_refused():
    field = lambda t: t  # noqa: E731
    rc.verify(torch.eye(3), at=torch.ones(3), gradient=field, groups={"a": slice(2)})


def test_chunks_shrink_with_the_budget():
    dag = make("chain").dag
    sizes, nodes = {"input": 5, "a": 4, "b": 6, "c": 3, "out": 4}, dag.order
    need = exact_elements(dag, sizes, nodes)
    budget = need.results + 3 * need.each
    assert [need.fit(budget - less) for less in (0, 1)] == [3, 2]
    assert need.fit(need.results - 1) == 0
    require_room(need, 3, 8, 8 * budget)
    with refusal("over the budget"):
        require_room(need, 4, 8, 8 * budget)
    with refusal("over the budget"):
        require_room(exact_elements(dag, sizes, nodes, per_example=True), 3, 8, 8 * budget)


def attend(h):
    h = h.unsqueeze(1)
    return F.scaled_dot_product_attention(h, h, h).squeeze(1)


def test_a_fused_kernel_has_a_gauss_newton_matrix_and_no_hessian():
    layers = [nn.Linear(2, 8), attend, nn.Flatten()]
    x, dag = torch.randn(2, 3, 2), rc.Dag.from_sequential(layers, lambda f, y: f.square().mean(1))
    for measure in (rc.exact_blocks, rc.split_blocks):
        with refusal(r"SDPBackend\.MATH"):
            measure(dag, x, x)
    fused = rc.gauss_newton_blocks(dag, x, x)["0", "0"]
    with sdpa_kernel(SDPBackend.MATH):
        plain = rc.split_blocks(dag, x, x).gauss_newton["0", "0"]
    assert torch.allclose(fused, plain, atol=1e-6)


# ------------------------------------------------------------------ examples that mix


@pytest.mark.parametrize("name", MIXING)
@refusal("node 'a'")
def test_examples_that_mix_are_refused(name):
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


def distances(t):
    return t + torch.exp(-torch.cdist(t, t)).sum(1, keepdim=True)


SPARINGLY = {
    "the last by the first": first_and_last,
    "one half by the other": halves,
    "batches of four": ghost_batches,
    "the largest": lambda t: t / t.abs().max(),
    "a thousandth of the mean": lambda t: t + 1e-3 * t.mean(0),
    "the number of examples": lambda t: t / len(t),
    "distances": distances,
}


@pytest.mark.parametrize("name", SPARINGLY)
def test_examples_that_mix_sparingly_are_refused_in_batches_of_any_size(name):
    for examples in (2, 3, 9, 33):
        for seed in range(2):
            x = normal(examples, 6, generator=seeded(seed))
            with refusal("'a' mixes the examples"):
                rc.exact_blocks(between(SPARINGLY[name]), x, torch.arange(examples) % 3)


def test_equal_halves_and_a_single_example_hide_no_mixing():
    with refusal("'a' mixes the examples"):
        rc.exact_blocks(between(MIXING["batch statistics"]), X[:2].repeat(2, 1), Y)
    with refusal("'a' mixes the examples"):
        rc.exact_blocks(between(MIXING["cumsum"]), X[:1], Y[:1])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_guards_hold_in_half_precision(dtype):
    """While tracing, or before measuring, where one example more changes less than half precision
    tells."""
    norm = nn.Sequential(nn.BatchNorm1d(5).to(dtype), nn.Tanh())
    dropped = lambda t: F.dropout(torch.tanh(t), 0.5)  # noqa: E731
    for fn in (lambda t: norm(t), MIXING["batch statistics"], dropped):
        with refusal("'a'"):
            rc.exact_blocks(between(fn, dtype), X.to(dtype), Y)


# ------------------------------------------------------------------ losses and labels


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("batch", [1, 4])
def test_a_summed_loss_is_refused_however_small(dtype, batch):
    net, x, y = mlp().to(dtype), X[:batch].to(dtype), torch.zeros(batch, dtype=torch.long)
    with torch.no_grad():  # logits so far apart that every loss is about 1e-6 or below
        net[2].weight.mul_(0)
        net[2].bias.copy_(torch.tensor([14.0, 0, 0]))
    with refusal("looks like a sum"):
        rc.exact_blocks(rc.Dag.from_sequential(net, loss=SUMMED), x, y)
    mean = rc.exact_blocks(rc.Dag.from_sequential(net, loss=MEAN), x, y)
    named = rc.exact_blocks(rc.Dag.from_sequential(net), x, y)
    assert relative_error(mean, named) < 1e-4


def test_a_summed_loss_of_a_perfect_fit_is_refused():
    dag = between(torch.tanh, loss=nn.MSELoss(reduction="sum"))
    target = dag.forward(X)["out"].detach()
    with refusal("not the mean"):
        rc.exact_blocks(dag, X, target)


def equal(found, expected):
    return all(torch.equal(found[pair], block) for pair, block in expected.items())


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32, torch.bool])
def test_labels_of_any_integer_type(dtype):
    """A uint8 or boolean tensor as an index is a mask: B = K makes that silent."""
    dag, x, y = sequential(), X[:3], torch.tensor([1, 0, 1])
    expected = rc.exact_blocks(dag, x, y)
    assert equal(rc.exact_blocks(dag, x, y.to(dtype)), expected)
    product = node_operator(dag, x, y.to(dtype)).block("0", "0").dense()
    assert torch.allclose(product, expected["0", "0"])


@pytest.mark.parametrize("measure", [rc.exact_blocks, rc.graph_metrics])
@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("label", [-1, -100, 3, 255])
def test_labels_out_of_range_are_refused(label, check, measure):
    with refusal(rf"expected classes 0 to 2, found {label} for example 2"):
        measure(sequential(), X, torch.tensor([0, 1, label, 0]), check=check)


@pytest.mark.parametrize("loss, message", [("cross_entropy", "ignore_index"), (MEAN, "ignores")])
def test_ignored_labels_are_refused_where_that_many_classes_exist(loss, message):
    with refusal(message):
        rc.exact_blocks(sequential(loss, 120), X, torch.tensor([0, 1, -100, 0]))


# ------------------------------------------------------------ backwards without a second derivative


@pytest.mark.parametrize("measure", [rc.exact_blocks, rc.split_blocks, rc.graph_metrics])
@refusal(r"node 'a'.*once_differentiable")
def test_a_backward_that_is_differentiable_once_is_refused(measure):
    measure(between(Swish.apply), X, Y)


def test_gauss_newton_needs_it_once():
    expected = rc.gauss_newton_blocks(between(F.silu), X, Y)
    assert relative_error(rc.gauss_newton_blocks(between(Swish.apply), X, Y), expected) < 1e-12


# -------------------------------------------------- mistakes: one line with the node and what to do

SMOOTH = between(torch.tanh)
EMBEDDING = rc.Dag.from_sequential(
    [nn.Embedding(7, 3).double(), lambda h: torch.tanh(h[:, 0])], names=["embed", "out"]
)
TOKENS = torch.randint(0, 7, (4, 2), generator=seeded())


@pytest.fixture(params=[rc.exact_blocks, rc.graph_metrics])
def refused(request):
    """Asserts that a measurement is refused with a short text."""

    def refused(message, dag, x=X, y=Y, **options):
        with pytest.raises(ValueError, match=message) as caught:
            request.param(dag, x, y, **options)
        assert "\n" not in str(caught.value) and len(str(caught.value)) < 400

    return refused


def test_inputs_that_do_not_fit_name_the_node(refused):
    refused(r"expected a Dag, found Sequential.*from_sequential.*LayerOperator", mlp())
    dtype = r"node '0' failed on \(4, 6\) float32.*one dtype"
    widths = r"node '0' failed on \(4, 4\) float64.*Check the widths"
    for check in (True, False):
        refused(dtype, sequential(), X.float(), check=check)
        refused(widths, sequential(), X[:, :4], check=check)
    tokens = r"node 'input' holds \(4, 2\) int64.*Measure the nodes after it"
    refused(tokens, EMBEDDING, TOKENS, nodes=["input", "embed"])


def of_four(t):
    return torch.tanh(t.view(4, 5).add(torch.zeros(4, 1)))


def test_functions_that_fail_name_the_node(refused):
    refused(r"node 'a' failed.*one dtype", between(nn.Linear(5, 5)))
    refused(r"node 'a' failed.*one argument for each parent", between(lambda a, b: a))
    refused(r"node 'a' failed.*KeyError", between(lambda a: {}["missing"]))
    refused(r"node 'a' failed.*must take any number", between(of_four))
    refused(r"'a' returned a tuple.*\[0\]", between(lambda t: (t, t)))
    refused(r"'a' returned a dict.*\['logits'\]", between(lambda t: {"logits": t}))
    refused("'a' returned a float", between(lambda t: 3.0))
    refused(r"'a' returned shape \(\)", between(lambda t: t.sum()))


def test_losses_that_fail_say_what_to_do(refused):
    def refuses(message, loss):
        refused(message, between(torch.tanh, loss=loss))

    refuses("the loss returned a float: expected a tensor", lambda f, y: float(f.sum()))
    refuses("does not depend on the output", lambda f, y: F.cross_entropy(f.detach(), y))
    refuses("the loss failed on output", lambda f, y: F.cross_entropy(f, y[:, None, None]))
    refuses(r"the loss failed.*loss\(output, target\)", lambda f: f.sum(1))


def test_targets_that_do_not_fit_say_what_to_do(refused):
    shapes = r"mse: target shape \(4, 2\) does not match the output's \(4, 3\)"
    refused(shapes, between(torch.tanh, loss="mse"), y=X[:, :2])
    refused(r"cross_entropy: expected class indices of shape \(4,\)", SMOOTH, y=Y[:, None])
    refused("integer type, or probabilities", SMOOTH, y=Y.double())


def test_one_node_may_be_named_alone_and_tokens_are_measured():
    assert set(rc.exact_blocks(sequential(), X, Y, "0")) == {("0", "0")}
    assert node_operator(sequential(), X, Y, "0").nodes == ("0",)
    assert rc.exact_blocks(EMBEDDING, TOKENS, Y)["embed", "embed"].isfinite().all()


def test_integer_targets_of_a_regression():
    dag = between(torch.tanh, loss="mse", outputs=1)
    assert equal(rc.exact_blocks(dag, X, Y), rc.exact_blocks(dag, X, Y.double()))


def test_autocast_is_off_in_products():
    operator = node_operator(between(torch.tanh, torch.float32), X.float(), Y)
    expected = operator.block("h", "h").dense()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(operator.block("h", "h").dense(), expected)


def test_weights_made_in_inference_mode_say_so():
    with torch.inference_mode():
        dag = sequential()
    with refusal(r"'0' failed.*inference_mode"):
        rc.graph_metrics(dag, X, Y, ["input"])


def test_weights_that_a_call_changes_are_refused():
    embedded = nn.Sequential(nn.Embedding(5, 2, max_norm=0.1), nn.Flatten())
    dag = rc.Dag.from_sequential([embedded, nn.Linear(4, 3)])
    with refusal(r"'0\.0' rescales its weights"):
        rc.exact_blocks(dag, torch.ones(2, 2).long(), torch.ones(2).long())
