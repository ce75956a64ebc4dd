"""Path decomposition: terms add up to the exact blocks, and the paths are all of them."""

import pytest
import torch

from runner.curvature import Dag, Node, gauss_newton_blocks, path_decomposition, paths
from tests.curvature.cases import GRAPHS, dense_hessian, make


@pytest.mark.parametrize("activation", ["smooth", "relu"])
@pytest.mark.parametrize("graph", GRAPHS)
def test_terms_add_up_to_the_block(graph, activation):
    case = make(graph, activation)
    exact = dense_hessian(case, case.nodes)
    scale = max(float(block.abs().max()) for block in exact.values())
    pairs = [(v, w) for i, v in enumerate(case.nodes) for w in case.nodes[i:]]
    for v, w in pairs:
        terms = path_decomposition(case.dag, case.x, case.y, v, w)
        assert float((sum(t.block for t in terms) - exact[v, w]).abs().max()) < 1e-10 * scale


def test_loss_terms_add_up_to_gauss_newton():
    case = make("nested_branches")
    exact = gauss_newton_blocks(case.dag, case.x, case.y)
    terms = [t for t in path_decomposition(case.dag, case.x, case.y, "s", "a") if t.from_loss]
    assert torch.allclose(sum(t.block for t in terms), exact["s", "a"], atol=1e-12)
    assert len(terms) == len(paths(case.dag, "s", "out")) * len(paths(case.dag, "a", "out"))


def test_paths_of_a_graph():
    dag = make("nested_branches").dag
    assert paths(dag, "a", "m") == [("a", "a1", "am", "m"), ("a", "a2", "am", "m"), ("a", "m")]
    assert paths(dag, "a", "a") == [("a",)]
    assert paths(dag, "m", "a") == []
    assert len(paths(dag, "input", "out")) == 5
    with pytest.raises(ValueError, match="unknown"):
        paths(dag, "a", "nowhere")


def test_resonance_is_subadditive_over_paths():
    """Corollary 67."""
    case = make("skip")
    terms = path_decomposition(case.dag, case.x, case.y, "a", "b")
    total = float(torch.linalg.matrix_norm(sum(t.block for t in terms)))
    assert total <= sum(t.resonance for t in terms)
    assert {t.source for t in terms} >= {"out", "c"} and all(t.path_v[0] == "a" and t.path_w[0] == "b" for t in terms)


def test_too_many_paths_are_refused():
    nodes = [Node("h0", ("input",), torch.tanh)]
    for i in range(12):
        nodes.append(Node(f"s{i}", (f"h{i}",), torch.sin))
        nodes.append(Node(f"h{i + 1}", (f"h{i}", f"s{i}"), lambda a, b: a + b))
    case = make("chain")
    with pytest.raises(ValueError, match="more than max_pairs"):
        path_decomposition(Dag(nodes, loss="mse"), case.x, case.x, "h0", "h0")
