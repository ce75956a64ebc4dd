"""trace_module against a dense float64 Hessian, whose perturbations forward hooks add to the module's own outputs."""

import copy
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import grad, vmap
from torch.nn.modules.module import register_module_forward_hook

from runner.curvature import CurvatureOperator, Dag, Node, exact_blocks, parameter_hessian, trace_module, verify
from runner.curvature.graph.tracing.prepare import ATTENTION_NOTE
from runner.curvature.graph.tracing.segment import Segment
from tests.curvature.cases import Own, X, Y, between, patched, relative_error, seeded
from tests.curvature.module_cases import (
    MODULES,
    CausalAttention,
    Checkpointed,
    Encoder,
    ModuleCase,
    Recurrent,
    Reused,
    classes,
    hessian_by_hooks,
    make_module,
    ready,
    x,
)
from tests.curvature.oracles import flat_function


def trace(case, **options):
    return trace_module(case.module, case.loss, case.batch, case.nodes, **case.options, **options)


LONG = ("transformer encoder", "cells")


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in LONG else n for n in MODULES])
def test_blocks_of_unmodified_modules(name):
    case = make_module(name)
    dag = trace(case)
    expected = hessian_by_hooks(case, dag.order)
    found = exact_blocks(dag, dag.x, dag.y)
    assert min(float(expected[v, v].abs().max()) for v in dag.order) > 1e-5  # nothing is dead
    assert relative_error(found, expected) < 1e-10
    v, w = dag.order[0], dag.order[-1]
    operator = CurvatureOperator(dag, dag.x, dag.y)
    z = torch.randn(operator.sizes[w], dtype=torch.float64)
    assert torch.allclose(operator.block(v, w).matvec(z), expected[v, w] @ z, rtol=1e-9, atol=1e-12)


CERTIFIED = ("mlp", "mixture", "tokens and features", "unusual", "embedding bag")


@pytest.mark.parametrize("name", [n if n in CERTIFIED else pytest.param(n, marks=pytest.mark.slow) for n in MODULES])
def test_certificates_of_unmodified_modules(name):
    case = make_module(name)
    dag = trace(case)
    certificate = verify(dag, dag.x, dag.y)
    stopped = name == "unusual"  # a part without gradient: the blocks are autograd's, not those of the function
    assert certificate.ok is not stopped, str(certificate)


def parents(dag):
    return {name: node.parents for name, node in dag.nodes.items()}


def test_edges_are_the_data_flow():
    """Of a residual stream: what is added up stays a parent of everything that reads the sum."""
    dag = trace_module(ready(Encoder()), F.cross_entropy, (x(2, 3, 2), classes(2)), "blocks.*.*", output="logits")
    assert parents(dag) == {
        "blocks.0.norm1": ("input",),
        "blocks.0.attn": ("blocks.0.norm1",),
        "blocks.0.norm2": ("input", "blocks.0.attn"),
        "blocks.0.mlp": ("blocks.0.norm2",),
        "blocks.1.norm1": ("input", "blocks.0.attn", "blocks.0.mlp"),
        "blocks.1.attn": ("blocks.1.norm1",),
        "blocks.1.norm2": ("input", "blocks.0.attn", "blocks.0.mlp", "blocks.1.attn"),
        "blocks.1.mlp": ("blocks.1.norm2",),
        "output": ("input", "blocks.0.attn", "blocks.0.mlp", "blocks.1.attn", "blocks.1.mlp"),
    }
    assert any("math kernel" in note for note in dag.notes)
    assert not any("of its output" in note for note in dag.notes)
    lstm = trace(make_module("lstm"))
    assert "node 'lstm' is tensor 0 of the 3 of its output" in lstm.notes


def test_each_call_of_a_module_is_a_node():
    dag = trace(make_module("reused"))
    assert parents(dag)["layer#2"] == ("act#2",)
    assert parents(dag)["head"] == ("act", "act#3")
    assert isinstance(dag.nodes["layer#2"].fn, nn.Linear)  # closed form, shared with "layer"
    assert dag.nodes["layer"].fn is dag.nodes["layer#2"].fn


def test_a_replay_runs_only_what_its_node_needs():
    case = make_module("resnet")
    dag = trace(case)
    values, ran = dag.forward(dag.x), []
    for name, m in case.module.named_modules():
        if isinstance(m, nn.Conv2d):
            original = m._conv_forward
            m._conv_forward = lambda *a, name=name, original=original: (ran.append(name), original(*a))[1]
    node = dag.nodes["layer4.0"]
    assert isinstance(node.fn, Segment) and node.parents == ("layer3.0",)
    assert torch.allclose(node(*(values[p] for p in node.parents)), values["layer4.0"])
    assert ran == ["layer3.1.conv1", "layer3.1.conv2", "layer4.0.conv1", "layer4.0.conv2", "layer4.0.downsample.0"]


def test_weights_are_live():
    case = make_module("multihead attention")
    dag = trace(case)
    before = exact_blocks(dag, dag.x, dag.y)
    with torch.no_grad():
        for p in case.module.parameters():
            p.add_(0.1 * torch.randn_like(p))
        case.module.head.weight.data = 0.5 * case.module.head.weight
    after = exact_blocks(dag, dag.x, dag.y)
    assert relative_error(after, hessian_by_hooks(case, dag.order)) < 1e-10
    assert relative_error(after, before) > 1e-2


def test_constants_of_the_code_are_live():
    parts = {"layer": nn.Linear(3, 4), "head": nn.Linear(4, 2), "s": 1.0}
    module = ready(Own(lambda m, t: m.head(torch.tanh(m.layer(t) * m.s)), **parts))
    dag = trace_module(module, "cross_entropy", (x(3, 3), classes(3, 2)))
    module.s = 1.001
    fresh = trace_module(module, "cross_entropy", (dag.x, dag.y))
    assert relative_error(exact_blocks(dag, dag.x, dag.y), exact_blocks(fresh, dag.x, dag.y)) < 1e-14


def test_the_module_is_left_as_it_was():
    case = make_module("resnet")
    state = copy.deepcopy(case.module.state_dict())
    case.module.conv1.weight.requires_grad_(False)
    forward = [m.forward for m in case.module.modules()]
    dag = trace(case)
    exact_blocks(dag, dag.x, dag.y)
    with pytest.raises(ValueError, match="nearest"):
        trace_module(case.module, case.loss, case.batch, ["layer9"])
    case.module.bn1.train()
    with pytest.raises(ValueError, match="bn1"):
        trace(case)
    with pytest.raises(ValueError, match="bn1"):
        exact_blocks(dag, dag.x, dag.y)
    assert all(torch.equal(value, state[key]) for key, value in case.module.state_dict().items())
    assert [m.forward for m in case.module.modules()] == forward
    assert not any("forward" in vars(m) for m in case.module.modules())
    assert not case.module.conv1.weight.requires_grad and case.module.bn1.training


class Wrong(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.how, self.layer, self.head, self.unused = how, nn.Linear(3, 4), nn.Linear(4, 2), nn.Linear(4, 4)
        self.last = 0.0

    def forward(self, t):
        h = self.layer(t)
        if self.how == "random":
            h = F.dropout(h, 0.5)
        elif self.how == "mixing":
            h = h - h.mean(0)
        elif self.how == "causal":
            h = h.cumsum(0)
        elif self.how == "stateful":
            h, self.last = h + self.last, h.detach().mean()
        elif self.how == "dead":
            self.unused(h)
        return self.head(h)


@pytest.mark.parametrize(
    ("how", "nodes", "message"),
    [
        ("random", None, "draws at random"),
        ("mixing", None, "mixes the examples"),
        ("causal", None, "mixes the examples"),
        ("stateful", None, "mixes the examples|keeps values"),
        ("dead", ["layer", "unused"], "does not depend on"),
        ("", ["layer", "unused"], "never called"),
        ("", ["layr"], "nearest is 'layer'"),
        ("", [], "nodes is empty"),
    ],
)
def test_refusals_name_the_cause(how, nodes, message):
    with pytest.raises(ValueError, match=message):
        trace_module(Wrong(how).double(), "cross_entropy", (x(5, 3), classes(5, 2)), nodes)


def test_other_refusals():
    with pytest.raises(ValueError, match="training mode"):
        trace_module(nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5)), "cross_entropy", (torch.zeros(2, 3), classes(2)))
    with pytest.raises(ValueError, match="one of the tensors of the output"):
        trace_module(ready(Recurrent()), "cross_entropy", (x(3, 2, 2), classes(3, 2)), {"lstm": lambda out: 2 * out[0]})
    with pytest.raises(ValueError, match="has no '7'"):
        trace_module(ready(Recurrent()), "cross_entropy", (x(3, 2, 2), classes(3, 2)), {"lstm": "7"})


def test_parts_left_out_are_said():
    case = make_module("mixture")
    dag = trace_module(case.module, "cross_entropy", case.batch)
    assert dag.order == ("stem", "gate", "head")
    assert any("experts.0" in note for note in dag.notes)
    assert parents(dag)["head"] == ("stem", "gate")


SEEN = {"item": lambda t: t.item(), "tolist": lambda t: t.tolist(), "numpy": lambda t: float(t.detach().numpy())}


@pytest.mark.parametrize("seen", SEEN)
def test_control_flow_by_values_makes_edges(seen):
    parts = {"gate": nn.Linear(3, 1), "layer": nn.Linear(3, 4), "head": nn.Linear(4, 2)}
    scale_of = lambda m, t: 2.0 if SEEN[seen](m.gate(t).sum()) > 0 else -3.0  # noqa: E731
    module = ready(Own(lambda m, t: m.head(torch.tanh(scale_of(m, t) * m.layer(t))), **parts))
    for given in (x(1, 3), -x(1, 3)):
        dag = trace_module(module, "cross_entropy", (given, classes(1)))
        assert parents(dag)["head"] == ("gate", "layer")
        blocks = exact_blocks(dag, dag.x, dag.y)
        assert not blocks["gate", "gate"].any()
        h = module.layer(given).detach()
        scale = 2.0 if module.gate(given).item() > 0 else -3.0
        loss = lambda e, h=h, s=scale: F.cross_entropy(module.head(torch.tanh(s * (h + e))), classes(1))  # noqa: E731
        expected = torch.autograd.functional.hessian(loss, torch.zeros(4, dtype=torch.float64))
        assert torch.allclose(blocks["layer", "layer"], expected, rtol=1e-10)


def test_another_precision():
    case = make_module("two inputs")
    dag = trace(case)
    half = dag.to(torch.float32)
    assert half.x.dtype == torch.float32 and case.module.head.weight.dtype == torch.float64
    found = exact_blocks(half, half.x, half.y)
    assert relative_error({k: v.double() for k, v in found.items()}, exact_blocks(dag, dag.x, dag.y)) < 1e-4


def test_another_batch():
    case = make_module("multihead attention")
    dag = trace(case)
    given = ((x(5, 3, 2),), {"mask": torch.zeros(5, 3, dtype=torch.bool), "scale": 0.7})
    fresh = trace_module(case.module, case.loss, (given, classes(5)), case.nodes)
    packed, y = dag.pack(given), dag.pack_target(classes(5))
    assert torch.equal(packed, fresh.x)
    assert relative_error(exact_blocks(dag, packed, y), exact_blocks(fresh, fresh.x, fresh.y)) < 1e-12


@pytest.mark.parametrize("module", [Reused, lambda: Checkpointed(False)])
def test_parameters_of_the_parts(module):
    module = ready(module())
    loss = nn.MSELoss()
    given, target = x(3, 3), x(3, 2)
    dag = trace_module(module, loss, (given, target), ["body", "head"] if hasattr(module, "body") else ["head"])
    found = parameter_hessian(dag, dag.x, dag.y)
    names = [name.split("root.")[-1].removeprefix("head.") for name in found.spans]
    known = dict(module.named_parameters())
    full = [next(k for k in (n, f"head.{n}", f"body.{n}") if k in known) for n in names]
    if hasattr(module, "reentrant"):
        module.reentrant = None
    output, flat = flat_function(module, given, full)
    expected = torch.autograd.functional.hessian(lambda t: loss(output(t), target), flat)
    assert len(flat) == sum(p.numel() for p in known.values())
    assert torch.allclose(found.matrix, expected, rtol=1e-9, atol=1e-12)


# ------------------------------------------------------------------ hooks, losses and memory of their own


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


def test_a_hook_for_all_modules_is_part_of_them():
    handle = register_module_forward_hook(lambda m, _, out: out.sin() if isinstance(m, nn.Linear) else None)
    try:
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


def own(forward):
    return Own(forward, a=nn.Linear(6, 5), b=nn.Linear(5, 5), c=nn.Linear(5, 3))


OWN = {
    "vmap": lambda s, t: s.c(vmap(lambda row: torch.tanh(s.b(torch.tanh(s.a(row)))))(t)),
    "func.grad": lambda s, t: s.c(s.b(vmap(grad(lambda row: torch.tanh(row).pow(3).sum()))(s.a(t)))),
}


@pytest.mark.parametrize("name", OWN)
def test_functional_transforms_inside(name):
    torch.manual_seed(0)
    assert agrees(ModuleCase(ready(own(OWN[name])), X, Y, nn.CrossEntropyLoss(), ["c"]))


def test_complex_numbers_between_nodes_are_refused_with_the_way_out():
    parts = [Node("f", ("input",), torch.fft.rfft), Node("out", ("f",), lambda t: torch.fft.irfft(t * t.abs()))]
    with pytest.raises(ValueError, match=r"'f' holds .* complex128.*comes back to real numbers"):
        exact_blocks(Dag(parts, "mse"), X, X)


def test_a_module_that_changes_its_input_in_place_leaves_the_batch_as_it_was():
    torch.manual_seed(0)
    plain = ready(own(lambda s, t: s.c(torch.tanh(s.b(s.a(torch.relu(t) - 0.5))))))
    changing = ready(own(lambda s, t: s.c(torch.tanh(s.b(s.a(t.relu_().sub_(0.5)))))))
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


# ------------------------------------------------------------------ batches, and what cannot be measured


def labelled(kind=Own):
    parts = {"body": nn.Linear(6, 5), "head": nn.Linear(5, 3)}
    return kind(lambda m, t: {"loss": None, "logits": m.head(torch.tanh(m.body(t)))}, **parts)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("loss", ["cross_entropy", lambda out, y: F.cross_entropy(out["logits"], y)])
def test_tracing_is_the_same_in_every_gradient_mode(mode, loss):
    module = net() if loss == "cross_entropy" else ready(labelled())
    plain = trace_module(module, loss, (X, Y), "0" if loss == "cross_entropy" else "body")
    with mode():
        inside = trace_module(module, loss, (X.clone(), Y), "0" if loss == "cross_entropy" else "body")
    assert relative_error(exact_blocks(inside, inside.x, inside.y), exact_blocks(plain, plain.x, plain.y)) < 1e-14


def of_table():
    """Looks its tokens up in a table that is given with every batch."""
    parts = {"body": nn.Linear(3, 4), "head": nn.Linear(4, 2)}
    return Own(lambda m, tokens, table: m.head(torch.tanh(m.body(table[tokens].sum(1)))), **parts)


def test_an_input_that_belongs_to_no_example_is_named_by_shared():
    """A table with as many rows as there are examples."""
    torch.manual_seed(0)
    module, tokens, table, y = ready(of_table()), torch.tensor([[0, 1], [2, 3], [3, 1], [0, 0]]), x(4, 3), classes(4, 2)
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
    "meta node": (lambda: exact_blocks(between(nn.Linear(5, 5, device="meta")), X, Y), "'a' has weights on the meta"),
    "list": (lambda: exact_blocks(between(torch.tanh), X, Y.tolist()), "expected a tensor for y, found list"),
    "array": (lambda: CurvatureOperator(between(torch.tanh), X.numpy(), Y), "expected a tensor for x, found ndarray"),
    "own loss": (
        lambda: trace_module(ready(own(lambda s, t: s.c(s.b(s.a(t))).sum())), lambda f, y: f, (X, Y)),
        "leave the loss to loss",
    ),
    "own gradient": (
        lambda: trace_module(
            ready(own(lambda s, t: s.c(torch.autograd.grad(s.a(t).sin().sum(), s.a.bias)[0] + s.a(t)))),
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
    class Single(Own):
        def __deepcopy__(self, memo):
            raise TypeError("there is one of me")

    module = ready(labelled(Single))
    dag = trace_module(module, lambda out, y: F.cross_entropy(out["logits"], y), (X, Y), ["body"])
    assert verify(dag, dag.x, dag.y, generator=seeded()).ok
    with pytest.raises(ValueError, match=r"cannot be copied.*there is one of me"):
        dag.to(torch.float32)


@pytest.mark.parametrize(("attention", "said"), [(CausalAttention(6), True), (nn.Linear(6, 6), False)])
def test_the_kernel_of_attention_is_said(attention, said):
    module = ready(nn.Sequential(nn.Linear(6, 6), attention, nn.Flatten(), nn.Linear(12, 3)))
    dag = trace_module(module, "cross_entropy", (x(2, 2, 6), classes(2)))
    assert (ATTENTION_NOTE in dag.notes) is said
    assert ATTENTION_NOTE not in trace_module(ready(Recurrent()), "cross_entropy", (x(3, 2, 2), classes(3, 2))).notes


def test_a_callable_picks_a_tensor_of_an_output():
    case = make_module("lstm hidden state")
    by_path = trace_module(case.module, case.loss, case.batch, case.nodes)
    by_call = trace_module(case.module, case.loss, case.batch, {"embed": None, "lstm": lambda out: out[1][0]})
    found, expected = (exact_blocks(dag, dag.x, dag.y) for dag in (by_call, by_path))
    assert all(torch.equal(found[pair], expected[pair]) for pair in expected)
    picks = ("logits", lambda out: out["logits"])
    one, other = (trace_module(ready(labelled()), "cross_entropy", (X, Y), output=pick) for pick in picks)
    assert one.order == other.order == ("body", "head")
