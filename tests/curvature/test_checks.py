"""Guards before measuring: each makes a measurement that would be wrong an error that says what to do."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from runner.curvature import CurvatureOperator, Dag, Node, exact_blocks, gauss_newton_blocks, split_blocks
from runner.curvature.graph.checks import exact_elements, plan_chunk
from tests.curvature.cases import make

X, Y = torch.randn(4, 3, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 0])


def network(*parts, loss="cross_entropy"):
    return Dag([Node("body", ("input",), nn.Sequential(*parts)), Node("out", ("body",), nn.Linear(3, 3))], loss)


MEASUREMENTS = [exact_blocks, gauss_newton_blocks, split_blocks, CurvatureOperator]


@pytest.mark.parametrize("measure", MEASUREMENTS)
@pytest.mark.parametrize(
    ("module", "message"),
    [(nn.BatchNorm1d(3), "BatchNorm1d normalises by the batch"), (nn.Dropout(0.5), "Dropout is in training mode")],
)
def test_training_mode_is_refused(measure, module, message):
    with pytest.raises(ValueError, match=message):
        measure(network(nn.Linear(3, 3), module.train()), X, Y)


@pytest.mark.parametrize("module", [nn.BatchNorm1d(3).eval(), nn.Dropout(0.5).eval(), nn.Dropout(0.0)])
def test_evaluation_mode_is_measured(module):
    assert exact_blocks(network(nn.Linear(3, 3), module), X, Y)["body", "body"].isfinite().all()


def test_batch_norm_without_running_statistics_is_refused():
    with pytest.raises(ValueError, match="normalises by the batch"):
        exact_blocks(network(nn.BatchNorm1d(3, track_running_stats=False).eval()), X, Y)


def test_randomness_is_refused():
    dag = Dag([Node("a", ("input",), lambda h: F.dropout(h, 0.5)), Node("out", ("a",), nn.Linear(3, 3))])
    with pytest.raises(ValueError, match="'a' is not deterministic"):
        exact_blocks(dag, X, Y)


def test_mixing_examples_is_refused():
    dag = Dag([Node("a", ("input",), lambda h: h - h.mean(0)), Node("out", ("a",), nn.Linear(3, 3))])
    with pytest.raises(ValueError, match="'a' mixes the examples"):
        exact_blocks(dag, X, Y)


def test_a_loss_that_is_not_a_mean_is_refused():
    with pytest.raises(ValueError, match=r"looks like a sum.*mean over the examples"):
        exact_blocks(network(nn.Tanh(), loss=lambda f, y: F.cross_entropy(f, y, reduction="sum")), X, Y)
    with pytest.raises(ValueError, match="not the mean"):
        exact_blocks(network(nn.Tanh(), loss=lambda f, y: F.cross_entropy(f, y) + f.mean(0).square().sum()), X, Y)
    with pytest.raises(ValueError, match="not deterministic"):
        exact_blocks(network(nn.Tanh(), loss=lambda f, y: F.cross_entropy(f, y) * torch.rand(())), X, Y)
    with pytest.raises(ValueError, match="one value per example"):
        exact_blocks(network(nn.Tanh(), loss=lambda f, y: f), X, Y)


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_a_callable_loss_gives_the_blocks_of_the_named_one(reduction):
    body = nn.Tanh()
    named = network(body)
    head = named.nodes["out"]
    called = Dag(
        [named.nodes["body"], head], loss=lambda f, y: F.cross_entropy(f, y, reduction=reduction, label_smoothing=0.0)
    )
    a, b = exact_blocks(named, X, Y), exact_blocks(called, X, Y)
    assert all(torch.allclose(a[pair], b[pair], atol=1e-6) for pair in a)


def test_batches_are_checked():
    with pytest.raises(ValueError, match="as many targets as examples"):
        exact_blocks(network(nn.Tanh()), X, Y[:2])
    with pytest.raises(ValueError, match="empty"):
        exact_blocks(network(nn.Tanh()), X[:0], Y[:0])


def test_over_the_memory_budget_names_the_estimators():
    wide = Dag([Node("wide", ("input",), nn.Linear(3, 1_000_000)), Node("out", ("wide",), nn.Linear(1_000_000, 3))])
    with pytest.raises(ValueError, match=r"TiB.*frobenius_norms.*spectral_norms.*lanczos_extremes"):
        exact_blocks(wide, X, Y)
    with pytest.raises(ValueError, match="memory_budget"):
        exact_blocks(network(nn.Tanh()), X, Y, memory_budget=100)


def test_named_estimators_exist():
    import runner.curvature as curvature

    for name in ("frobenius_norms", "spectral_norms", "lanczos_extremes"):
        assert callable(getattr(curvature, name))


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


def test_the_unfused_kernel_is_measured():
    from torch.nn.attention import SDPBackend, sdpa_kernel

    x = torch.randn(2, 3, 2)
    with sdpa_kernel(SDPBackend.MATH):
        blocks = split_blocks(attention_with_a_fused_kernel(), x, x)
    assert blocks.tensor["h", "h"].any()


def test_guards_can_be_skipped():
    dag = Dag([Node("a", ("input",), lambda h: h - h.mean(0)), Node("out", ("a",), nn.Linear(3, 3))])
    assert exact_blocks(dag, X, Y, check=False)["a", "a"].isfinite().all()
