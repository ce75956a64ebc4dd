"""Products of modules between whose outputs there is no graph, against dense Hessians; the exact ways say why."""

import pytest
import torch
from torch import nn

import runner.curvature as rc
from runner.curvature.graph.from_module import trace_module
from tests.curvature.cases import Own, X, Y, relative_error, seeded
from tests.curvature.module_cases import ModuleCase, hessian_by_hooks, make_module, ready


def hooked_case(name: str) -> ModuleCase:
    torch.manual_seed(0)
    if name == "fixed batch":
        parts = {"a": nn.Linear(6, 5), "c": nn.Linear(5, 3), "gain": nn.Parameter(torch.rand(4, 5))}
        module = Own(
            lambda m, t: m.c(torch.tanh(m.a(t)) * m.gain), **parts
        )  # of four examples and no other number
        return ModuleCase(ready(module), X, Y, nn.CrossEntropyLoss(), ["a", "c"])
    case = make_module("mixture")
    return ModuleCase(
        case.module, case.given, case.target, case.loss, ["stem", "gate", "experts.0", "experts.1"]
    )


@pytest.mark.parametrize("name", ["fixed batch", "mixture"])
def test_products_work_where_no_graph_can_be_had_and_the_exact_path_says_why(name):
    case = hooked_case(name)
    dag = trace_module(case.module, case.loss, case.batch, case.nodes)
    names = [v for v in dag.order if v != "output"]
    assert dag.no_graph and any("not checked" in note for note in dag.notes)
    assert names == (
        ["a", "c"] if name == "fixed batch" else ["stem", "gate", "experts.0", "experts.1"]
    )
    expected = hessian_by_hooks(case, names)
    operator = rc.CurvatureOperator(dag, dag.x, dag.y)
    assert relative_error({p: operator.block(*p).dense() for p in expected}, expected) < 1e-10
    for part in ("total", "gauss_newton", "tensor"):
        found = rc.verify(rc.CurvatureOperator(dag, dag.x, dag.y, part=part), generator=seeded())
        assert found.ok and not found.reasons, str(found)
    assert rc.verify(dag, dag.x, dag.y, generator=seeded()).ok
    found = rc.inter_layer_metrics(dag, dag.x, dag.y, names, generator=seeded())
    smooth = rc.CurvatureOperator(dag, dag.x, dag.y, part="gauss_newton")
    for pair, metrics in found.items():
        block, bent = expected[pair], expected[pair] - smooth.block(*pair).dense()
        assert (
            metrics.method == "products" and metrics.R.error == 0
        )  # nodes of at most 30 components: unit vectors
        assert metrics.R.value == pytest.approx(float(block.norm()), rel=1e-10, abs=1e-14)
        if block.any():
            stable = float(block.norm() / torch.linalg.matrix_norm(block, 2)) ** 2
            assert metrics.D.value == pytest.approx(stable, rel=0.03)
            ratio = float(bent.norm() / smooth.block(*pair).dense().norm())
            assert metrics.gap.value == pytest.approx(ratio, rel=1e-8, abs=1e-12)
    why = (
        "cannot be run on 5 examples"
        if name == "fixed batch"
        else r"experts\.0.*no output with one row per example"
    )
    for exact in (rc.exact_blocks, rc.gauss_newton_blocks):
        with pytest.raises(
            ValueError, match=rf"no exact blocks without a graph.*{why}.*CurvatureOperator"
        ):
            exact(dag, dag.x, dag.y)
    with pytest.raises(ValueError, match="failed on input"):
        rc.CurvatureOperator(dag, dag.x[:, :2], dag.y)
    with torch.no_grad():
        case.module.get_submodule(names[0]).weight.mul_(2)
    with pytest.raises(ValueError, match="has changed"):
        operator.block(names[0], names[0]).dense()


def routed(m, t):
    h = torch.tanh(m.stem(t))
    chosen, out = m.gate(h).argmax(1), torch.zeros_like(h)
    for i, expert in enumerate(m.experts):
        out[chosen == i] = torch.tanh(expert(h[chosen == i]))
    return m.head(h + out)


def test_experts_with_as_many_rows_for_one_example_more():
    """Experts that see about half of 16 examples each. What the 17th of 16 examples does not change was taken for the
    same at every number of them."""
    torch.manual_seed(0)
    parts = {"stem": nn.Linear(6, 40), "gate": nn.Linear(40, 2), "head": nn.Linear(40, 3)}
    experts = nn.ModuleList([nn.Linear(40, 40), nn.Linear(40, 40)])
    module = Own(routed, **parts, experts=experts).double().eval()
    given, target = torch.randn(16, 6).double(), torch.arange(16) % 3
    dag = trace_module(
        module, nn.CrossEntropyLoss(), (given, target), ["stem", "experts.0", "experts.1"]
    )
    case = ModuleCase(
        module, given, target, nn.CrossEntropyLoss(), ["stem", "experts.0", "experts.1"]
    )
    sizes = rc.CurvatureOperator(dag, dag.x, dag.y).sizes
    assert [sizes[v] for v in case.nodes] == [40, 40, 40]
    expected = hessian_by_hooks(case, case.nodes)
    few, enough = (
        rc.inter_layer_metrics(
            dag, dag.x, dag.y, case.nodes, relative_error=error, generator=seeded()
        )
        for error in (None, 0.03)
    )
    for pair, block in expected.items():
        if block.any() and pair in few:
            truth = float(block.norm())
            assert few[pair].R.error > 0 and abs(few[pair].R.value - truth) <= 4 * few[pair].R.error
            assert enough[pair].R.error == 0 and enough[pair].R.value == pytest.approx(
                truth, rel=1e-10
            )
    assert rc.verify(dag, dag.x, dag.y, generator=seeded()).ok


def sparing(m, t):
    """An expert for the one example whose first feature is barely above a bound: a small step leaves it none."""
    h = m.stem(t)
    rows = (h[:, 0] > m.bound).nonzero()[:, 0]
    return m.head(h.index_add(0, rows, torch.tanh(m.expert(h[rows]))) if len(rows) else h)


def test_differences_whose_step_leaves_an_expert_without_examples():
    torch.manual_seed(0)
    parts = {
        "stem": nn.Linear(6, 4),
        "expert": nn.Linear(4, 4),
        "head": nn.Linear(4, 3),
        "bound": torch.tensor(0.0),
    }
    module, given, target = (
        Own(sparing, **parts).double().eval(),
        torch.randn(5, 6).double(),
        torch.arange(5) % 3,
    )
    with torch.no_grad():
        module.bound = module.stem(given)[:, 0].max() - 1e-4
    dag = trace_module(module, nn.CrossEntropyLoss(), (given, target), ["stem", "expert"])
    assert dag.no_graph
    found = rc.verify(dag, dag.x, dag.y, generator=seeded())
    assert found.ok and found.step < 1e-3, str(found)


def test_values_that_are_not_finite_have_one_line_without_a_graph():
    case = hooked_case("mixture")
    dag = trace_module(case.module, case.loss, case.batch, case.nodes)
    with torch.no_grad():
        case.module.stem.weight.fill_(torch.nan)
    with pytest.raises(ValueError, match=r"no derivatives there|did not call"):
        rc.inter_layer_metrics(dag, dag.x, dag.y)
