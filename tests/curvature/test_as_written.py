"""Modules, losses and batches that are not what their class says: measured as what they compute, or refused."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import grad, vmap
from torch.nn.modules.module import register_module_forward_hook

from runner.curvature import (
    CurvatureOperator,
    Dag,
    Node,
    block_jacobians,
    exact_blocks,
    gauss_newton_blocks,
    gauss_newton_factors,
    inter_layer_metrics,
    parameter_hessian,
    parametric_blocks,
    parametric_terms,
    path_decomposition,
    split_blocks,
    trace_module,
    verify,
)
from runner.curvature.graph.tracing.prepare import ATTENTION_NOTE
from runner.curvature.metrics import measure
from tests.curvature.cases import Case, dense_gauss_newton, dense_hessian, relative_error
from tests.curvature.module_cases import (
    CausalAttention,
    ModuleCase,
    Recurrent,
    classes,
    hessian_by_hooks,
    make_module,
    ready,
    x,
)
from tests.curvature.test_silent_errors import Swish, X, Y, chain, seeded


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return ready(nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)))


def agrees(case: ModuleCase, **options) -> bool:
    dag = trace_module(case.module, case.loss, case.batch, case.nodes, **options)
    names = [v for v in dag.order if v != "output"]
    expected = hessian_by_hooks(case, names)
    operator = CurvatureOperator(dag, dag.x, dag.y, names)
    products = {p: operator.block(*p).dense() for p in expected}
    assert relative_error(products, expected) < 1e-10
    return bool(dag.no_graph) or relative_error(exact_blocks(dag, dag.x, dag.y, names), expected) < 1e-10


# ------------------------------------------------------------------ modules that are not their class


class Called(nn.Linear):
    def __call__(self, t):
        return torch.sin(super().__call__(t))


def patched(module, forward):
    module.forward = forward(module.forward)
    return module


NOT_THEIR_CLASS = {
    "forward of the object": lambda: patched(nn.Linear(5, 5).double(), lambda own: lambda t: torch.tanh(own(t))),
    "call of the class": lambda: Called(5, 5).double(),
    "forward of a container": lambda: patched(
        nn.Sequential(nn.Linear(5, 5)).double(), lambda own: lambda t: own(t) ** 2
    ),
}


@pytest.mark.parametrize("name", NOT_THEIR_CLASS)
def test_closed_forms_are_of_what_a_module_computes(name):
    dag = chain(NOT_THEIR_CLASS[name]())
    case = Case("", dag, X, Y)
    assert relative_error(exact_blocks(dag, X, Y), dense_hessian(case, dag.order)) < 1e-10
    assert relative_error(gauss_newton_blocks(dag, X, Y), dense_gauss_newton(case, dag.order)) < 1e-10


def test_a_hook_for_all_modules_is_part_of_them():
    handle = register_module_forward_hook(lambda m, _, out: out.sin() if isinstance(m, nn.Linear) else None)
    try:
        dag = chain(nn.Tanh())
        assert relative_error(exact_blocks(dag, X, Y), dense_hessian(Case("", dag, X, Y), dag.order)) < 1e-10
        assert agrees(ModuleCase(net(), X, Y, F.cross_entropy))
    finally:
        handle.remove()


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_hook_of_its_own_is_part_of_a_submodule(place):
    module = net()
    module[place].register_forward_hook(lambda m, _, out: 2 * out.sin())
    module[2].register_forward_pre_hook(lambda m, given: (given[0].cos(),))
    assert agrees(ModuleCase(module, X, Y, F.cross_entropy, "*"))
    assert not any({"forward", "_call_impl"} & vars(m).keys() for m in module.modules())


# ------------------------------------------------------------------ losses that are not their class


class Focal(nn.CrossEntropyLoss):
    def forward(self, output, target):
        loss = F.cross_entropy(output, target, reduction="none")
        return ((1 - torch.exp(-loss)) ** 2 * loss).mean()


class Quartic(nn.MSELoss):
    def forward(self, output, target):
        return ((output - target) ** 4).mean()


def hooked_loss():
    loss = nn.CrossEntropyLoss()
    loss.register_forward_hook(lambda m, _, out: 3 * out)
    return loss


LOSSES = {
    "focal": (Focal, Y),
    "quartic": (Quartic, x(4, 3)),
    "hook": (hooked_loss, Y),
    "forward of the object": (lambda: patched(nn.CrossEntropyLoss(), lambda own: lambda f, y: own(2 * f, y)), Y),
    "plain": (nn.CrossEntropyLoss, Y),
    "plain squares": (nn.MSELoss, x(4, 3)),
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_derived_from_torchs_is_measured_as_what_it_computes(name):
    loss, target = LOSSES[name]
    assert agrees(ModuleCase(net(), X, target, loss()))
    dag = trace_module(net(), loss(), (X, target))
    assert (dag.loss.name != "callable") == name.startswith("plain")


def test_squares_that_spread_over_outputs_of_another_shape_are_refused():
    module = ready(nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 1)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, of the shapes
        with pytest.raises(ValueError, match=r"not the mean|broadcasts"):
            dag = trace_module(module, nn.MSELoss(), (X, x(4)))
            exact_blocks(dag, dag.x, dag.y)


# ------------------------------------------------------------------ derivatives and memory of their own


class Own(nn.Module):
    def __init__(self, forward):
        super().__init__()
        self.a, self.b, self.c, self.own = nn.Linear(6, 5), nn.Linear(5, 5), nn.Linear(5, 3), forward

    def forward(self, t):
        return self.own(self, t)


class Transposed(nn.Module):
    def forward(self, t):
        return t.unflatten(1, (2, 3)).transpose(1, 2)


OWN = {
    "vmap": lambda s, t: s.c(vmap(lambda row: torch.tanh(s.b(torch.tanh(s.a(row)))))(t)),
    "func.grad": lambda s, t: s.c(s.b(vmap(grad(lambda row: torch.tanh(row).pow(3).sum()))(s.a(t)))),
}


@pytest.mark.parametrize("name", OWN)
def test_functional_transforms_inside(name):
    torch.manual_seed(0)
    assert agrees(ModuleCase(ready(Own(OWN[name])), X, Y, nn.CrossEntropyLoss(), ["c"]))


def test_outputs_that_are_no_contiguous_memory_or_empty():
    dag = Dag([Node("a", ("input",), torch.sin), Node("out", ("a",), Transposed())], "mse")
    y = x(4, 3, 2)
    found, expected = CurvatureOperator(dag, X, y, part="gauss_newton"), gauss_newton_blocks(dag, X, y)
    assert relative_error({p: found.block(*p).dense() for p in expected}, expected) < 1e-12
    parts = [Node("a", ("input",), torch.sin), Node("none", ("a",), lambda t: t[:, :0])]
    dag = Dag([*parts, Node("out", ("none", "a"), lambda n, a: torch.cat([n, a], 1).tanh())], "mse")
    expected = dense_hessian(Case("", dag, X, X), ("a", "out"))
    assert relative_error(exact_blocks(dag, X, X), expected) < 1e-12


def test_complex_numbers_between_nodes_are_refused_with_the_way_out():
    parts = [Node("f", ("input",), torch.fft.rfft), Node("out", ("f",), lambda t: torch.fft.irfft(t * t.abs()))]
    with pytest.raises(ValueError, match=r"'f' holds .* complex128.*comes back to real numbers"):
        exact_blocks(Dag(parts, "mse"), X, X)


def test_a_module_that_changes_its_input_in_place_leaves_the_batch_as_it_was():
    torch.manual_seed(0)
    plain = ready(Own(lambda s, t: s.c(torch.tanh(s.b(s.a(torch.relu(t) - 0.5))))))
    changing = ready(Own(lambda s, t: s.c(torch.tanh(s.b(s.a(t.relu_().sub_(0.5)))))))
    changing.load_state_dict(plain.state_dict())
    given = X.clone()
    dag, expected = (trace_module(m, "cross_entropy", (given, Y)) for m in (changing, plain))
    assert relative_error(exact_blocks(dag, dag.x, dag.y), exact_blocks(expected, X, Y)) < 1e-12
    operator = CurvatureOperator(dag, dag.x, dag.y)
    assert torch.allclose(operator.block("a", "b").dense(), exact_blocks(expected, X, Y)["a", "b"])
    assert verify(dag, dag.x, dag.y, generator=seeded()).ok
    assert torch.equal(given, X) and torch.equal(dag.x, X)


def test_a_hook_of_a_compiled_submodule_is_part_of_it():
    module = net()
    module[0].compile(backend="eager")
    module[0].register_forward_hook(lambda m, _, out: 2 * out.sin())
    dag = trace_module(module, "cross_entropy", (X, Y), ["0"])
    h = (2 * F.linear(X, module[0].weight, module[0].bias).sin()).detach()
    loss = lambda e: F.cross_entropy(module[2](torch.tanh(h + e)), Y)  # noqa: E731
    expected = torch.autograd.functional.hessian(loss, torch.zeros(5, dtype=torch.float64))
    assert torch.allclose(exact_blocks(dag, dag.x, dag.y)["0", "0"], expected, rtol=1e-10)


def test_a_compiled_submodule_without_second_derivative_is_run_in_python():
    module = net()
    inside = ready(nn.Sequential(torch.compile(module[:2], backend="aot_eager"), module[2]))
    dag, plain = (trace_module(m, "cross_entropy", (X, Y), [n]) for m, n in ((inside, "0"), (module, "1")))
    found, expected = (exact_blocks(d, d.x, d.y) for d in (dag, plain))
    assert torch.allclose(found["0", "0"], expected["1", "1"], rtol=1e-12)
    operator = CurvatureOperator(dag, dag.x, dag.y)
    assert torch.allclose(operator.block("0", "0").dense(), expected["1", "1"], rtol=1e-10)


# ------------------------------------------------------------------ where no graph can be had


class Fixed(nn.Module):
    """Runs on four examples and no other number of them."""

    def __init__(self):
        super().__init__()
        self.a, self.c = nn.Linear(6, 5), nn.Linear(5, 3)
        self.register_buffer("gain", torch.rand(4, 5))

    def forward(self, t):
        return self.c(torch.tanh(self.a(t)) * self.gain)


def hooked_case(name: str) -> ModuleCase:
    torch.manual_seed(0)
    if name == "fixed batch":
        return ModuleCase(ready(Fixed()), X, Y, nn.CrossEntropyLoss(), ["a", "c"])
    case = make_module("mixture")
    return ModuleCase(case.module, case.given, case.target, case.loss, ["stem", "gate", "experts.0", "experts.1"])


def hessian_of_rows(case: ModuleCase, nodes: list[str]) -> dict:
    """Every row of a submodule's output gets the same e."""
    known, shapes, shifts = dict(case.module.named_modules()), {}, {}

    def hook(name):
        def add(_, __, out):
            shapes[name] = out.shape[1:]
            return out + shifts[name] if name in shifts else None

        return add

    handles = [known[name].register_forward_hook(hook(name)) for name in nodes]
    case.module(case.given)
    sizes = [shapes[v].numel() for v in nodes]

    def total(flat: Tensor) -> Tensor:
        shifts.update({v: e.view(1, *shapes[v]) for v, e in zip(nodes, flat.split(sizes), strict=True)})
        return case.loss(case.module(case.given), case.target)

    dense = torch.autograd.functional.hessian(total, torch.zeros(sum(sizes), dtype=torch.float64))
    for handle in handles:
        handle.remove()
    rows = zip(nodes, dense.split(sizes), strict=True)
    return {(v, w): b for v, row in rows for w, b in zip(nodes, row.split(sizes, 1), strict=True)}


@pytest.mark.parametrize("name", ["fixed batch", "mixture"])
def test_products_work_where_no_graph_can_be_had_and_the_exact_path_says_why(name):
    case = hooked_case(name)
    dag = trace_module(case.module, case.loss, case.batch, case.nodes)
    names = [v for v in dag.order if v != "output"]
    assert dag.no_graph and any("not checked" in note for note in dag.notes)
    assert names == (["a", "c"] if name == "fixed batch" else ["stem", "gate", "experts.0", "experts.1"])
    expected = hessian_of_rows(case, names)
    operator = CurvatureOperator(dag, dag.x, dag.y)
    assert relative_error({p: operator.block(*p).dense() for p in expected}, expected) < 1e-10
    for part in ("total", "gauss_newton", "tensor"):
        found = verify(CurvatureOperator(dag, dag.x, dag.y, part=part), generator=seeded())
        assert found.ok and not found.reasons, str(found)
    assert verify(dag, dag.x, dag.y, generator=seeded()).ok
    found = inter_layer_metrics(dag, dag.x, dag.y, names, generator=seeded())
    smooth = CurvatureOperator(dag, dag.x, dag.y, part="gauss_newton")
    for pair, metrics in found.items():
        block, bent = expected[pair], expected[pair] - smooth.block(*pair).dense()
        assert metrics.method == "products" and metrics.R.error == 0  # nodes of at most 30 components: unit vectors
        assert metrics.R.value == pytest.approx(float(block.norm()), rel=1e-10, abs=1e-14)
        if block.any():
            stable = float(block.norm() / torch.linalg.matrix_norm(block, 2)) ** 2
            assert metrics.D.value == pytest.approx(stable, rel=0.03)
            ratio = float(bent.norm() / smooth.block(*pair).dense().norm())
            assert metrics.gap.value == pytest.approx(ratio, rel=1e-8, abs=1e-12)
    why = "cannot be run on 5 examples" if name == "fixed batch" else r"experts\.0.*no output with one row per example"
    for exact in (exact_blocks, gauss_newton_blocks):
        with pytest.raises(ValueError, match=rf"no exact blocks without a graph.*{why}.*CurvatureOperator"):
            exact(dag, dag.x, dag.y)
    with pytest.raises(ValueError, match="failed on input"):
        CurvatureOperator(dag, dag.x[:, :2], dag.y)
    with torch.no_grad():
        case.module.get_submodule(names[0]).weight.mul_(2)
    with pytest.raises(ValueError, match="has changed"):
        operator.block(names[0], names[0]).dense()


class Routed(nn.Module):
    """A mixture whose experts see about half of 16 examples each."""

    def __init__(self):
        super().__init__()
        self.stem, self.gate, self.head = nn.Linear(6, 40), nn.Linear(40, 2), nn.Linear(40, 3)
        self.experts = nn.ModuleList([nn.Linear(40, 40), nn.Linear(40, 40)])

    def forward(self, t):
        h = torch.tanh(self.stem(t))
        chosen, out = self.gate(h).argmax(1), torch.zeros_like(h)
        for i, expert in enumerate(self.experts):
            out[chosen == i] = torch.tanh(expert(h[chosen == i]))
        return self.head(h + out)


def test_experts_with_as_many_rows_for_one_example_more():
    """What the 17th of 16 examples does not change was taken for the same at every number of them."""
    torch.manual_seed(0)
    module, given, target = Routed().double().eval(), torch.randn(16, 6).double(), torch.arange(16) % 3
    dag = trace_module(module, nn.CrossEntropyLoss(), (given, target), ["stem", "experts.0", "experts.1"])
    case = ModuleCase(module, given, target, nn.CrossEntropyLoss(), ["stem", "experts.0", "experts.1"])
    sizes = CurvatureOperator(dag, dag.x, dag.y).sizes
    assert [sizes[v] for v in case.nodes] == [40, 40, 40]
    expected = hessian_of_rows(case, case.nodes)
    few, enough = (
        inter_layer_metrics(dag, dag.x, dag.y, case.nodes, relative_error=error, generator=seeded())
        for error in (None, 0.03)
    )
    for pair, block in expected.items():
        if block.any() and pair in few:
            truth = float(block.norm())
            assert few[pair].R.error > 0 and abs(few[pair].R.value - truth) <= 4 * few[pair].R.error
            assert enough[pair].R.error == 0 and enough[pair].R.value == pytest.approx(truth, rel=1e-10)
    assert verify(dag, dag.x, dag.y, generator=seeded()).ok


class Sparing(nn.Module):
    """An expert for the one example whose first feature is barely above a bound: a small step leaves it none."""

    def __init__(self):
        super().__init__()
        self.stem, self.expert, self.head = nn.Linear(6, 4), nn.Linear(4, 4), nn.Linear(4, 3)
        self.register_buffer("bound", torch.tensor(0.0))

    def forward(self, t):
        h = self.stem(t)
        rows = (h[:, 0] > self.bound).nonzero()[:, 0]
        return self.head(h.index_add(0, rows, torch.tanh(self.expert(h[rows]))) if len(rows) else h)


def test_differences_whose_step_leaves_an_expert_without_examples():
    torch.manual_seed(0)
    module, given, target = Sparing().double().eval(), torch.randn(5, 6).double(), torch.arange(5) % 3
    with torch.no_grad():
        module.bound.copy_(module.stem(given)[:, 0].max() - 1e-4)
    dag = trace_module(module, nn.CrossEntropyLoss(), (given, target), ["stem", "expert"])
    assert dag.no_graph
    found = verify(dag, dag.x, dag.y, generator=seeded())
    assert found.ok and found.step < 1e-3, str(found)


def test_values_that_are_not_finite_have_one_line_without_a_graph():
    case = hooked_case("mixture")
    dag = trace_module(case.module, case.loss, case.batch, case.nodes)
    with torch.no_grad():
        case.module.stem.weight.fill_(torch.nan)
    with pytest.raises(ValueError, match=r"no derivatives there|did not call"):
        inter_layer_metrics(dag, dag.x, dag.y)


def test_a_wrong_product_without_a_graph_is_not_certified():
    case = hooked_case("mixture")
    dag = trace_module(case.module, case.loss, case.batch, case.nodes)
    operator = CurvatureOperator(dag, dag.x, dag.y)
    right = operator.whole
    operator.whole = lambda directions: tuple({v: 1.01 * p for v, p in f.items()} for f in right(directions))
    assert not verify(operator, generator=seeded()).ok


# ------------------------------------------------------------------ the module is left as it was


class Restless(nn.Module):
    """Keeps what it can keep, draws at random, rescales its own embeddings."""

    def __init__(self, how="") -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))
        self.embed, self.head = nn.Embedding(7, 4, max_norm=0.5), nn.Linear(4, 2)
        self.log, self.calls, self.last, self.how = [], 0, None, how

    def forward(self, t):
        self.calls += 1
        self.head.bias.requires_grad_(True)
        self.seen += len(t)
        self.last = h = self.embed(t).mean(1)
        self.log.append(h)
        self.new = h
        noise = torch.rand(()) if self.how == "random" else 0
        return self.head(torch.tanh(h)) + noise + (self.head(h).mean(0) if self.how == "mixing" else 0)


@pytest.mark.parametrize("how", ["", "random", "mixing", "name"])
def test_tracing_and_measuring_leave_the_module_as_it_was(how):
    module = Restless(how).double()
    module.head.bias.requires_grad_(False)
    weights, state = {k: v.clone() for k, v in module.state_dict().items()}, torch.get_rng_state()
    given, target = classes(8, 7).view(4, 2), classes(4, 2)
    if how:
        with pytest.raises(ValueError, match=r"random|mixes|nearest"):
            trace_module(module, "cross_entropy", (given, target), ["hed"] if how == "name" else None)
    else:
        dag = trace_module(module, "cross_entropy", (given, target))
        exact_blocks(dag, dag.x, dag.y)
        operator = CurvatureOperator(dag, dag.x, dag.y)
        operator.block("embed", "head").dense()
        assert verify(operator, generator=seeded()).ok
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(module.state_dict()[k], v) for k, v in weights.items())
    assert module.calls == 0 and module.last is None and module.log == [] and not hasattr(module, "new")
    assert not module.head.bias.requires_grad and module.head.weight.requires_grad and module.training


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("loss", ["cross_entropy", lambda out, y: F.cross_entropy(out["logits"], y)])
def test_tracing_is_the_same_in_every_gradient_mode(mode, loss):
    module = net() if loss == "cross_entropy" else ready(Labelled())
    plain = trace_module(module, loss, (X, Y), "0" if loss == "cross_entropy" else "body")
    with mode():
        inside = trace_module(module, loss, (X.clone(), Y), "0" if loss == "cross_entropy" else "body")
    assert relative_error(exact_blocks(inside, inside.x, inside.y), exact_blocks(plain, plain.x, plain.y)) < 1e-14


class Labelled(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(6, 5), nn.Linear(5, 3)

    def forward(self, t):
        return {"loss": None, "logits": self.head(torch.tanh(self.body(t)))}


# ------------------------------------------------------------------ batches


class Table(nn.Module):
    """Looks its tokens up in a table that is given with every batch."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, tokens, table):
        return self.head(torch.tanh(self.body(table[tokens].sum(1))))


def test_an_input_that_belongs_to_no_example_is_named_by_shared():
    """A table with as many rows as there are examples."""
    torch.manual_seed(0)
    module, tokens, table, y = ready(Table()), torch.tensor([[0, 1], [2, 3], [3, 1], [0, 0]]), x(4, 3), classes(4, 2)
    dag = trace_module(module, "cross_entropy", ((tokens, table), y))
    with pytest.raises(ValueError, match="mixes the examples"):
        exact_blocks(dag, dag.x, dag.y)
    for given, name in (((tokens, table), "1"), ({"tokens": tokens, "table": table}, "table")):
        dag = trace_module(module, "cross_entropy", (given, y), shared=[name])
        assert dag.x.shape == (4, 2) and f"input {name!r} is the same for all examples" in dag.notes
        h = module.body(table[tokens].sum(1)).detach()
        loss = lambda e, h=h: F.cross_entropy(module.head(torch.tanh(h + e)), y)  # noqa: E731
        expected = torch.autograd.functional.hessian(loss, torch.zeros(4, dtype=torch.float64))
        assert torch.allclose(exact_blocks(dag, dag.x, dag.y)["body", "body"], expected, rtol=1e-10)
    with pytest.raises(ValueError, match=r"shared names \['tabel'\].*\['tokens', 'table'\]"):
        trace_module(module, "cross_entropy", ({"tokens": tokens, "table": table}, y), shared=["tabel"])


REFUSED = {
    "no pair": (lambda: trace_module(net(), "cross_entropy", X), r"expected batch = \(input, target\), found \(4, 6\)"),
    "no module": (lambda: trace_module(torch.tanh, "cross_entropy", (X, Y)), "expected an nn.Module, found builtin"),
    "no names": (lambda: trace_module(net(), "cross_entropy", (X, Y), 3), "names or patterns of submodules, found 3"),
    "lazy": (lambda: trace_module(nn.Sequential(nn.LazyLinear(3)), "mse", (X, X)), "has no weights yet"),
    "short target": (lambda: trace_module(net(), "mse", (X, X[:3])), r"target \(\(3, 6\) float64\) does not fit 4"),
    "no target": (lambda: trace_module(net(), lambda f, y: f.sum(), (X, None)), "target is None"),
    "empty": (lambda: trace_module(net(), "cross_entropy", (X[:0], Y[:0])), "batch is empty"),
    "nan": (lambda: trace_module(net(), "cross_entropy", (X / 0, Y)), r"'input' is not finite.*example 0"),
    "width": (lambda: trace_module(net(), "cross_entropy", (X[:, :2], Y)), r"failed on its batch, \(4, 2\) float64"),
    "meta": (lambda: trace_module(net().to("meta"), "cross_entropy", (X, Y)), "meta device"),
    "meta node": (lambda: exact_blocks(chain(nn.Linear(5, 5, device="meta")), X, Y), "'a' has weights on the meta"),
    "list": (lambda: exact_blocks(chain(torch.tanh), X, Y.tolist()), "expected a tensor for y, found list"),
    "array": (lambda: CurvatureOperator(chain(torch.tanh), X.numpy(), Y), "expected a tensor for x, found ndarray"),
    "own loss": (
        lambda: trace_module(ready(Own(lambda s, t: s.c(s.b(s.a(t))).sum())), lambda f, y: f, (X, Y)),
        "leave the loss to loss",
    ),
    "own gradient": (
        lambda: trace_module(
            ready(Own(lambda s, t: s.c(torch.autograd.grad(s.a(t).sin().sum(), s.a.bias)[0] + s.a(t)))),
            "cross_entropy",
            (X, Y),
        ),
        "enable_grad",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_batches_and_modules_that_cannot_be_measured_are_told_in_a_line(name):
    make, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        make()


def test_autocast_around_a_trace_is_refused():
    with torch.autocast("cpu", dtype=torch.bfloat16), pytest.raises(ValueError, match="autocast is on"):
        trace_module(net().float(), "cross_entropy", (X.float(), Y))


def test_a_module_that_refuses_to_be_copied_is_measured_and_has_no_other_precision():
    class Single(Labelled):
        def __deepcopy__(self, memo):
            raise TypeError("there is one of me")

    module = ready(Single())
    dag = trace_module(module, lambda out, y: F.cross_entropy(out["logits"], y), (X, Y), ["body"])
    assert verify(dag, dag.x, dag.y, generator=seeded()).ok
    with pytest.raises(ValueError, match=r"cannot be copied.*there is one of me"):
        dag.to(torch.float32)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("seed", range(8))
def test_examples_that_mix_are_refused_in_half_precision(dtype, seed):
    """While tracing, or before measuring, where one example more changes less than half precision tells."""
    torch.manual_seed(seed)
    module = Own(lambda s, t: s.c(torch.tanh(s.b(s.a(t))) + 0.5 * s.a(t).mean(0))).to(dtype)
    with pytest.raises(ValueError, match="mixes the examples"):
        dag = trace_module(module, "cross_entropy", (torch.randn(4, 6).to(dtype), Y))
        exact_blocks(dag, dag.x, dag.y)


@pytest.mark.parametrize(("attention", "said"), [(CausalAttention(6), True), (nn.Linear(6, 6), False)])
def test_the_kernel_of_attention_is_said(attention, said):
    module = ready(nn.Sequential(nn.Linear(6, 6), attention, nn.Flatten(), nn.Linear(12, 3)))
    dag = trace_module(module, "cross_entropy", (x(2, 2, 6), classes(2)))
    assert (ATTENTION_NOTE in dag.notes) is said
    assert ATTENTION_NOTE not in trace_module(ready(Recurrent()), "cross_entropy", (x(3, 2, 2), classes(3, 2))).notes


# ------------------------------------------------------------------ R, C, D and gap of the same networks


CHANGED_IN_PLACE = {
    "rectified": [Node("b", ("a",), nn.ReLU(inplace=True)), Node("c", ("a", "b"), lambda a, b: a + b)],
    "smooth": [Node("b", ("a",), nn.SiLU(inplace=True)), Node("c", ("b", "a"), lambda b, a: b * a)],
}


@pytest.mark.parametrize("name", CHANGED_IN_PLACE)
@pytest.mark.parametrize("way", ["factors", "cheapest"])
def test_metrics_of_nodes_that_work_in_place(name, way, monkeypatch):
    """A parent that a node overwrites keeps its value for its other children."""
    if way == "factors":
        monkeypatch.setattr(measure, "exact_price", lambda *_: float("inf"))
    torch.manual_seed(0)
    dag = Dag(
        [Node("a", ("input",), torch.sin), *CHANGED_IN_PLACE[name], Node("out", ("c",), nn.Linear(6, 3).double())]
    )
    split = split_blocks(dag, X, Y)
    for (v, w), found in inter_layer_metrics(dag, X, Y, ["a", "b", "c"], generator=seeded()).items():
        norm, rest = float(split.total[v, w].norm()), float(split.tensor[v, w].norm())
        assert abs(found.R.value - norm) <= 4 * found.R.error + 1e-10 * norm
        gap = rest / float(split.gauss_newton[v, w].norm())
        assert abs(found.gap.value - gap) <= 4 * found.gap.error + 1e-10


@pytest.mark.parametrize("way", ["factors", "cheapest"])
def test_metrics_of_a_backward_that_is_differentiable_once_are_refused(way, monkeypatch):
    if way == "factors":
        monkeypatch.setattr(measure, "exact_price", lambda *_: float("inf"))
    with pytest.raises(ValueError, match=r"node 'a'.*once_differentiable"):
        inter_layer_metrics(chain(Swish.apply), X, Y, ["h"])


# ------------------------------------------------------------------ every function of a graph


class Counting(nn.Module):
    """Counts its calls in a buffer and in a number, and keeps its last input."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros((), dtype=torch.float64))
        self.layer, self.calls = nn.Linear(5, 5).double(), 0

    def forward(self, h):
        self.seen += 1
        self.calls += 1
        self.last = h
        return torch.tanh(self.layer(h)) * h


EVERYWHERE = {
    "inter_layer_metrics": lambda dag, x: inter_layer_metrics(dag, x, Y, generator=seeded()),
    "block_jacobians": block_jacobians,
    "gauss_newton_factors": lambda dag, x: gauss_newton_factors(dag, x, Y),
    "path_decomposition": lambda dag, x: path_decomposition(dag, x, Y, "h", "out"),
    "parametric_blocks": lambda dag, x: parametric_blocks(dag, x, Y),
    "parametric_terms": lambda dag, x: parametric_terms(dag, x, Y),
    "parameter_hessian": lambda dag, x: parameter_hessian(dag, x, Y),
    "split_blocks": lambda dag, x: split_blocks(dag, x, Y),
}


@pytest.mark.parametrize("name", EVERYWHERE)
def test_every_measurement_is_guarded_and_leaves_the_model_as_it_was(name):
    measured = EVERYWHERE[name]
    module = Counting()
    dag = chain(module)
    for mode in (torch.enable_grad, torch.no_grad, torch.inference_mode):
        with mode():
            assert measured(dag, X.clone())
    assert float(module.seen) == 0 and module.calls == 0 and not hasattr(module, "last")
    norm = nn.BatchNorm1d(5).double()
    for refused in (norm, lambda t: norm(t), lambda t: t.cumsum(0).sin(), lambda t: F.dropout(t, 0.5)):
        with pytest.raises(ValueError, match="'a'"):
            measured(chain(refused), X)
    with pytest.raises(ValueError, match="not finite"):
        measured(chain(torch.tanh), X / 0)
    with pytest.raises(ValueError, match="expected a tensor for x"):
        measured(chain(torch.tanh), X.tolist())
    with torch.autocast("cpu", dtype=torch.bfloat16), pytest.raises(ValueError, match="autocast"):
        measured(chain(torch.tanh), X)
    assert int(norm.num_batches_tracked) == 0 and not norm.running_mean.any()


def test_a_callable_picks_a_tensor_of_an_output():
    case = make_module("lstm hidden state")
    by_path = trace_module(case.module, case.loss, case.batch, case.nodes)
    by_call = trace_module(case.module, case.loss, case.batch, {"embed": None, "lstm": lambda out: out[1][0]})
    found, expected = (exact_blocks(dag, dag.x, dag.y) for dag in (by_call, by_path))
    assert all(torch.equal(found[pair], expected[pair]) for pair in expected)
    picks = ("logits", lambda out: out["logits"])
    one, other = (trace_module(ready(Labelled()), "cross_entropy", (X, Y), output=pick) for pick in picks)
    assert one.order == other.order == ("body", "head")
