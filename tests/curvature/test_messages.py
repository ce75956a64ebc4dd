"""A mistake gets one line: the node, what was expected, what was found, what to do."""

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
    gn_gaps,
    lanczos_extremes,
    spectral_norms,
    split_blocks,
    stable_ranks,
)
from runner.curvature.closed_form import three_layer as tl
from tests.curvature.cases import PAIR, X, Y, between, mlp, seeded

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


def test_labels_of_the_three_layer_network():
    theta, x = torch.zeros(tl.parameter_count(2, 3), dtype=torch.float64), torch.ones(4, 2, dtype=torch.float64)
    with pytest.raises(ValueError, match="labels q between 0 and 1"):
        tl.loss(theta, x, torch.tensor([0.0, 1.0, -1.0, 0.0], dtype=torch.float64), "tanh")


def test_messages_are_one_line():
    with pytest.raises(ValueError) as caught:
        split_blocks(between(nn.Linear(7, 5).double()), X, Y)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400
