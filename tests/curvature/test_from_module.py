"""trace_module against a dense float64 Hessian, whose perturbations forward hooks add to the module's own outputs."""

from collections import OrderedDict

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import grad, vmap
from torch.nn.modules.module import register_module_forward_hook

from runner.curvature import (
    CurvatureOperator,
    Dag,
    Node,
    exact_blocks,
    inter_layer_metrics,
    verify,
)
from runner.curvature.graph.from_module import trace_module
from runner.curvature.graph.tracing.prepare import ATTENTION_NOTE
from runner.curvature.graph.tracing.segment import Segment
from tests.curvature.cases import Own, X, Y, between, patched, relative_error, seeded
from tests.curvature.module_cases import (
    MODULES,
    Encoder,
    ModuleCase,
    Recurrent,
    classes,
    hessian_by_hooks,
    make_module,
    ready,
    x,
)


def trace(case, **options):
    return trace_module(case.module, case.loss, case.batch, case.nodes, **case.options, **options)


LONG = ("transformer encoder", "cells", "flat language model", "unet", "weight norm")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n in LONG else n for n in MODULES]
)
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


CERTIFIED = ("mixture", "unusual", "embedding bag")


@pytest.mark.parametrize(
    "name", [n if n in CERTIFIED else pytest.param(n, marks=pytest.mark.slow) for n in MODULES]
)
def test_certificates_of_unmodified_modules(name):
    case = make_module(name)
    dag = trace(case)
    certificate = verify(dag, dag.x, dag.y)
    stopped = (
        name == "unusual"
    )  # a part without gradient: the blocks are autograd's, not those of the function
    assert certificate.ok is not stopped, str(certificate)


def parents(dag):
    return {name: node.parents for name, node in dag.nodes.items()}


def test_edges_are_the_data_flow():
    """Of a residual stream: what is added up stays a parent of everything that reads the sum."""
    dag = trace_module(
        ready(Encoder()), F.cross_entropy, (x(2, 3, 2), classes(2)), "blocks.*.*", output="logits"
    )
    stream = ("input", "blocks.0.attn", "blocks.0.mlp", "blocks.1.attn", "blocks.1.mlp")
    assert parents(dag) == {
        "blocks.0.norm1": stream[:1],
        "blocks.0.attn": ("blocks.0.norm1",),
        "blocks.0.norm2": stream[:2],
        "blocks.0.mlp": ("blocks.0.norm2",),
        "blocks.1.norm1": stream[:3],
        "blocks.1.attn": ("blocks.1.norm1",),
        "blocks.1.norm2": stream[:4],
        "blocks.1.mlp": ("blocks.1.norm2",),
        "output": stream,
    }
    assert ATTENTION_NOTE in dag.notes and not any("of its output" in note for note in dag.notes)
    lstm = trace(make_module("lstm"))
    assert (
        "node 'lstm' is tensor 0 of the 3 of its output" in lstm.notes
        and ATTENTION_NOTE not in lstm.notes
    )


def test_each_call_of_a_module_is_a_node():
    dag = trace(make_module("reused"))
    assert parents(dag)["layer#2"] == ("act#2",) and parents(dag)["head"] == ("act", "act#3")
    assert isinstance(dag.nodes["layer#2"].fn, nn.Linear)  # closed form, shared with "layer"
    assert dag.nodes["layer"].fn is dag.nodes["layer#2"].fn


def test_a_replay_runs_only_what_its_node_needs():
    case = make_module("resnet")
    dag = trace(case)
    values, ran = dag.forward(dag.x), []
    for name, m in case.module.named_modules():
        if isinstance(m, nn.Conv2d):
            original = m._conv_forward
            m._conv_forward = lambda *a, name=name, original=original: (
                ran.append(name),
                original(*a),
            )[1]
    node = dag.nodes["layer3.0"]
    assert isinstance(node.fn, Segment) and node.parents == ("layer2.0",)
    assert torch.allclose(node(*(values[p] for p in node.parents)), values["layer3.0"])
    assert ran == [
        "layer2.1.conv1",
        "layer2.1.conv2",
        "layer3.0.conv1",
        "layer3.0.conv2",
        "layer3.0.downsample.0",
    ]


def test_weights_and_constants_of_the_code_are_live():
    case = make_module("multihead attention")
    dag = trace(case)
    with torch.no_grad():
        for p in case.module.parameters():
            p.add_(0.1 * torch.randn_like(p))
        case.module.head.weight.data = 0.5 * case.module.head.weight
    assert (
        relative_error(exact_blocks(dag, dag.x, dag.y), hessian_by_hooks(case, dag.order)) < 1e-10
    )
    parts = {"layer": nn.Linear(3, 4), "head": nn.Linear(4, 2), "s": 1.0}
    module = ready(Own(lambda m, t: m.head(torch.tanh(m.layer(t) * m.s)), **parts))
    dag = trace_module(module, "cross_entropy", (x(3, 3), classes(3, 2)))
    module.s = 1.001
    fresh = trace_module(module, "cross_entropy", (dag.x, dag.y))
    assert (
        relative_error(exact_blocks(dag, dag.x, dag.y), exact_blocks(fresh, dag.x, dag.y)) < 1e-14
    )


def stateful(m, t):
    h = m.layer(t)
    shifted, m.last = h + m.last, h.detach().mean()
    return m.head(shifted)


WRONG = {
    "random": (lambda m, t: m.head(F.dropout(m.layer(t), 0.5)), None, "draws at random"),
    "mixing": (lambda m, t: m.head(m.layer(t) - m.layer(t).mean(0)), None, "mixes the examples"),
    "causal": (lambda m, t: m.head(m.layer(t).cumsum(0)), None, "mixes the examples"),
    "stateful": (stateful, None, "mixes the examples|keeps values"),
    "dead": (
        lambda m, t: (m.unused(t), m.head(m.layer(t)))[1],
        ["layer", "unused"],
        "does not depend on",
    ),
    "uncalled": (lambda m, t: m.head(m.layer(t)), ["layer", "unused"], "never called"),
    "name": (lambda m, t: m.head(m.layer(t)), ["layr"], "nearest is 'layer'"),
    "no nodes": (lambda m, t: m.head(m.layer(t)), [], "nodes is empty"),
}


@pytest.mark.parametrize("name", WRONG)
def test_refusals_name_the_cause(name):
    forward, nodes, message = WRONG[name]
    parts = {
        "layer": nn.Linear(3, 4),
        "head": nn.Linear(4, 2),
        "unused": nn.Linear(3, 3),
        "last": 0.0,
    }
    with pytest.raises(ValueError, match=message):
        trace_module(
            Own(forward, **parts).double(), "cross_entropy", (x(5, 3), classes(5, 2)), nodes
        )


def test_parts_left_out_are_said():
    case = make_module("mixture")
    dag = trace_module(case.module, "cross_entropy", case.batch)
    assert dag.order == ("stem", "gate", "head")
    assert any("experts.0" in note for note in dag.notes)
    assert parents(dag)["head"] == ("stem", "gate")


SEEN = {
    "item": lambda t: t.item(),
    "tolist": lambda t: t.tolist(),
    "numpy": lambda t: float(t.detach().numpy()),
}


@pytest.mark.parametrize("seen", SEEN)
def test_control_flow_by_values_makes_edges(seen):
    parts = {"gate": nn.Linear(3, 1), "layer": nn.Linear(3, 4), "head": nn.Linear(4, 2)}
    scale_of = lambda m, t: 2.0 if SEEN[seen](m.gate(t).sum()) > 0 else -3.0  # noqa: E731
    module = ready(Own(lambda m, t: m.head(torch.tanh(scale_of(m, t) * m.layer(t))), **parts))
    for given in (x(1, 3), -x(1, 3)):
        case = ModuleCase(module, given, classes(1), nn.CrossEntropyLoss(), ["layer"])
        dag = trace_module(module, "cross_entropy", (given, classes(1)))
        assert parents(dag)["head"] == ("gate", "layer")
        blocks = exact_blocks(dag, dag.x, dag.y)
        assert not blocks["gate", "gate"].any()
        assert relative_error(blocks, hessian_by_hooks(case, ["layer"])) < 1e-10


def test_another_precision_and_another_batch():
    case = make_module("multihead attention")
    dag = trace(case)
    half = dag.to(torch.float32)
    assert half.x.dtype == torch.float32 and case.module.head.weight.dtype == torch.float64
    found = exact_blocks(half, half.x, half.y)
    assert (
        relative_error({k: v.double() for k, v in found.items()}, exact_blocks(dag, dag.x, dag.y))
        < 1e-4
    )
    given = ((x(5, 3, 2),), {"mask": torch.zeros(5, 3, dtype=torch.bool), "scale": 0.7})
    fresh = trace_module(case.module, case.loss, (given, classes(5)), case.nodes)
    packed, y = dag.pack(given), dag.pack_target(classes(5))
    assert torch.equal(packed, fresh.x)
    assert (
        relative_error(exact_blocks(dag, packed, y), exact_blocks(fresh, fresh.x, fresh.y)) < 1e-12
    )


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
    return (
        bool(dag.no_graph)
        or relative_error(exact_blocks(dag, dag.x, dag.y, names), expected) < 1e-10
    )


def test_a_hook_for_all_modules_is_part_of_them():
    handle = register_module_forward_hook(
        lambda m, _, out: out.sin() if isinstance(m, nn.Linear) else None
    )
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


def hooked_loss():
    loss = nn.CrossEntropyLoss()
    loss.register_forward_hook(lambda m, _, out: 3 * out)
    return loss


LOSSES = {
    "focal": (Focal, Y),
    "hook": (hooked_loss, Y),
    "forward of the object": (
        lambda: patched(nn.CrossEntropyLoss(), lambda own: lambda f, y: own(2 * f, y)),
        Y,
    ),
    "plain": (nn.CrossEntropyLoss, Y),
    "plain squares": (nn.MSELoss, x(4, 3)),
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_derived_from_torchs_is_measured_as_what_it_computes(name):
    loss, target = LOSSES[name]
    assert agrees(ModuleCase(net(), X, target, loss()))
    dag = trace_module(net(), loss(), (X, target))
    assert (dag.loss.name != "callable") == name.startswith("plain")


def own(forward):
    return Own(forward, a=nn.Linear(6, 5), b=nn.Linear(5, 5), c=nn.Linear(5, 3))


def masked(detach: bool):
    """Logits next to a tensor that the loss reads without differentiating it: a mask, or a weight that it detaches."""

    def forward(s, t):
        h = torch.tanh(s.a(t))
        return {"logits": s.c(s.b(h)), "keep": h[:, 0].exp() if detach else t[:, 0] > 0}

    def loss(output, target):
        each = F.cross_entropy(output["logits"], target, reduction="none")
        keep = output.get("keep")
        return each.mean() if keep is None else (each * (keep.detach() if detach else keep)).mean()

    return own(forward), loss


@pytest.mark.parametrize("detach", [False, True])
def test_what_a_loss_reads_of_the_output_besides_stays_as_it_is(detach):
    torch.manual_seed(0)
    module, loss = masked(detach)
    dag = trace_module(ready(module), loss, (X, Y), ["b", "c"])
    with torch.no_grad():
        whole = module(X)
        keep = whole["keep"].double()
    expected = torch.autograd.functional.hessian(
        lambda e: (F.cross_entropy(whole["logits"] + e, Y, reduction="none") * keep).mean(),
        torch.zeros(3, dtype=torch.float64),
    )
    assert torch.allclose(exact_blocks(dag, dag.x, dag.y)["c", "c"], expected, rtol=1e-10)
    assert verify(dag, dag.x, dag.y).ok
    with pytest.raises(ValueError, match="a mask of the output"):
        dag.pack_target(Y)
    with torch.no_grad():
        module.a.weight.mul_(1.5)
    if detach:  # the weight is now another one, the mask of the input is not
        with pytest.raises(ValueError, match="it has changed since the module was traced"):
            exact_blocks(dag, dag.x, dag.y)
    with pytest.raises(ValueError, match="it has changed since the module was traced"):
        exact_blocks(dag, -dag.x, dag.y)


class Both(OrderedDict):
    """Every field is an item and an attribute, as of Hugging Face's outputs."""

    def __init__(self, **fields):
        super().__init__(fields)
        vars(self).update(fields)


def test_a_mask_that_is_an_item_and_an_attribute_is_kept():
    torch.manual_seed(0)
    module = ready(own(lambda s, t: Both(logits=s.c(s.b(s.a(t))), keep=t[:, 0] > 0)))

    def loss(output, target):
        each = F.cross_entropy(output.logits, target, reduction="none")
        return each.mean() if output.keep is None else (each * output.keep).mean()

    dag = trace_module(module, loss, (X, Y), ["c"])
    with torch.no_grad():
        whole = module(X)
    expected = torch.autograd.functional.hessian(
        lambda e: (F.cross_entropy(whole.logits + e, Y, reduction="none") * whole.keep).mean(),
        torch.zeros(3, dtype=torch.float64),
    )
    assert torch.allclose(exact_blocks(dag, dag.x, dag.y)["c", "c"], expected, rtol=1e-10)
    with pytest.raises(ValueError, match="is not that of the tensors that it computes with"):
        trace_module(
            module,
            lambda o, y: F.cross_entropy(o.logits, y) * (2 if o.keep is not None else 1),
            (X, Y),
        )


def test_labels_next_to_a_weight_do_not_survive_every_precision():
    torch.manual_seed(0)
    module = ready(
        own(
            lambda s, t: {
                "logits": s.c(s.b(s.a(t))) @ torch.ones(3, 600).double(),
                "w": t[:, 0].exp(),
            }
        )
    )
    loss = lambda o, y: (F.cross_entropy(o["logits"], y, reduction="none") * o["w"].detach()).mean()  # noqa: E731
    dag = trace_module(module, loss, (X, torch.full((len(X),), 513)), ["c"])
    assert dag.to(torch.float32).y.dtype == torch.float32
    with pytest.raises(ValueError, match="do not fit into torch"):
        dag.to(torch.bfloat16)


def kept_by_an_attribute(how):
    def forward(s, t):
        h = torch.tanh(s.a(t))
        s.kept = {"graph": h, "detached": h.detach()}[how].pow(4).sum(1).mean()
        return s.c(s.b(h))

    module = own(forward)
    return module, lambda f, y: F.cross_entropy(f, y) + module.kept


@pytest.mark.parametrize("how", ["graph", "detached"])
def test_a_loss_of_what_the_module_keeps_is_refused(how):
    torch.manual_seed(0)
    module, loss = kept_by_an_attribute(how)
    with pytest.raises(ValueError, match="by another way than its output"):
        trace_module(ready(module), loss, (X, Y))
    penalised = ready(own(lambda s, t: s.c(s.b(s.a(t)))))
    dag = trace_module(
        penalised, lambda f, y: F.cross_entropy(f, y) + penalised.a.weight.square().sum(), (X, Y)
    )
    assert dag.order[-1] == "c"  # a penalty on the weights does not change from call to call


def test_a_loss_without_a_second_derivative_is_named():
    labels = torch.tensor([[0, -1, -1], [1, 2, -1], [2, -1, 0], [0, 1, -1]])
    dag = trace_module(net(), nn.MultiLabelMarginLoss(), (X, labels))
    for measure in (exact_blocks, lambda *data: inter_layer_metrics(*data)):
        with pytest.raises(
            ValueError, match="the loss uses an operation without a second derivative"
        ):
            measure(dag, dag.x, dag.y)


OWN = {
    "vmap": lambda s, t: s.c(vmap(lambda row: torch.tanh(s.b(torch.tanh(s.a(row)))))(t)),
    "func.grad": lambda s, t: s.c(
        s.b(vmap(grad(lambda row: torch.tanh(row).pow(3).sum()))(s.a(t)))
    ),
}


@pytest.mark.parametrize("name", OWN)
def test_functional_transforms_inside(name):
    torch.manual_seed(0)
    assert agrees(ModuleCase(ready(own(OWN[name])), X, Y, nn.CrossEntropyLoss(), ["c"]))


def test_complex_numbers_between_nodes_are_refused_with_the_way_out():
    parts = [
        Node("f", ("input",), torch.fft.rfft),
        Node("out", ("f",), lambda t: torch.fft.irfft(t * t.abs())),
    ]
    with pytest.raises(ValueError, match=r"'f' holds .* complex128.*comes back to real numbers"):
        exact_blocks(Dag(parts, "mse"), X, X)


def test_a_hook_of_a_compiled_submodule_is_part_of_it():
    plain, module = net(), net()
    module[0].compile(backend="eager")
    for m in (plain, module):
        m[0].register_forward_hook(lambda m, _, out: 2 * out.sin())
    dag = trace_module(module, "cross_entropy", (X, Y), ["0"])
    expected = hessian_by_hooks(ModuleCase(plain, X, Y, F.cross_entropy), ["0"])
    assert relative_error(exact_blocks(dag, dag.x, dag.y), expected) < 1e-10


# ------------------------------------------------------------------ batches, and what cannot be measured


def labelled(kind=Own):
    parts = {"body": nn.Linear(6, 5), "head": nn.Linear(5, 3)}
    return kind(lambda m, t: {"loss": None, "logits": m.head(torch.tanh(m.body(t)))}, **parts)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_tracing_is_the_same_in_every_gradient_mode(mode):
    labels = lambda out, y: F.cross_entropy(out["logits"], y)  # noqa: E731
    for module, loss, node in ((net(), "cross_entropy", "0"), (ready(labelled()), labels, "body")):
        plain = trace_module(module, loss, (X, Y), node)
        with mode():
            inside = trace_module(module, loss, (X.clone(), Y), node)
        assert (
            relative_error(
                exact_blocks(inside, inside.x, inside.y), exact_blocks(plain, plain.x, plain.y)
            )
            < 1e-14
        )


def test_an_input_that_belongs_to_no_example_is_named_by_shared():
    """A table, with as many rows as there are examples, in which the module looks its tokens up."""
    torch.manual_seed(0)
    parts = {"body": nn.Linear(3, 4), "head": nn.Linear(4, 2)}
    module = ready(
        Own(lambda m, tokens, table: m.head(torch.tanh(m.body(table[tokens].sum(1)))), **parts)
    )
    tokens, table, y = torch.tensor([[0, 1], [2, 3], [3, 1], [0, 0]]), x(4, 3), classes(4, 2)
    dag = trace_module(module, "cross_entropy", ((tokens, table), y))
    with pytest.raises(ValueError, match="mixes the examples"):
        exact_blocks(dag, dag.x, dag.y)
    for given, name in (((tokens, table), "1"), ({"tokens": tokens, "table": table}, "table")):
        dag = trace_module(module, "cross_entropy", (given, y), shared=[name])
        assert dag.x.shape == (4, 2) and f"input {name!r} is the same for all examples" in dag.notes
        expected = hessian_by_hooks(ModuleCase(module, given, y, F.cross_entropy), ["body"])
        assert relative_error(exact_blocks(dag, dag.x, dag.y), expected) < 1e-10
    with pytest.raises(ValueError, match=r"shared names \['tabel'\].*\['tokens', 'table'\]"):
        trace_module(
            module, "cross_entropy", ({"tokens": tokens, "table": table}, y), shared=["tabel"]
        )


def traced(module, given=X, target=Y, loss="cross_entropy", nodes=None):
    return lambda: trace_module(module(), loss, (given, target), nodes)


DROPPING, TIME = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5)), (x(3, 2, 2), classes(3, 2))
REFUSED = {
    "no pair": (lambda: trace_module(net(), "cross_entropy", X), r"expected batch = \(input, target\), found \(4, 6\)"),
    "no module": (traced(lambda: torch.tanh), "expected an nn.Module, found builtin"),
    "no names": (traced(net, nodes=3), "names or patterns of submodules, found 3"),
    "lazy": (traced(lambda: nn.Sequential(nn.LazyLinear(3)), X, X, "mse"), "has no weights yet"),
    "short target": (traced(net, X, X[:3], "mse"), r"target \(\(3, 6\) float64\) does not fit 4"),
    "no target": (traced(net, X, None, lambda f, y: f.sum()), "target is None"),
    "empty": (traced(net, X[:0], Y[:0]), "batch is empty"),
    "nan": (traced(net, X / 0), r"'input' is not finite.*example 0"),
    "width": (traced(net, X[:, :2]), r"failed on its batch, \(4, 2\) float64"),
    "meta": (traced(lambda: net().to("meta")), "meta device"),
    "training": (traced(lambda: DROPPING, torch.zeros(2, 3), classes(2)), "training mode"),
    "made tensor": (
        traced(lambda: ready(Recurrent()), *TIME, nodes={"lstm": lambda out: 2 * out[0]}),
        "one of the tensors of the output",
    ),
    "path": (traced(lambda: ready(Recurrent()), *TIME, nodes={"lstm": "7"}), "has no '7'"),
    "meta node": (lambda: exact_blocks(between(nn.Linear(5, 5, device="meta")), X, Y), "'a' has weights on the meta"),
    "list": (lambda: exact_blocks(between(torch.tanh), X, Y.tolist()), "expected a tensor for y, found list"),
    "array": (lambda: CurvatureOperator(between(torch.tanh), X.numpy(), Y), "expected a tensor for x, found ndarray"),
    "own loss": (
        traced(lambda: ready(own(lambda s, t: s.c(s.b(s.a(t))).sum())), loss=lambda f, y: f),
        "leave the loss to loss",
    ),
    "own gradient": (
        traced(lambda: ready(own(lambda s, t: s.c(torch.autograd.grad(s.a(t).sin().sum(), s.a.bias)[0] + s.a(t))))),
        "enable_grad",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_batches_and_modules_that_cannot_be_measured_are_told_in_a_line(name):
    make, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        make()


def test_autocast_around_a_trace_is_refused():
    with (
        torch.autocast("cpu", dtype=torch.bfloat16),
        pytest.raises(ValueError, match="autocast is on"),
    ):
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


def test_a_callable_picks_a_tensor_of_an_output():
    case = make_module("lstm hidden state")
    by_path = trace_module(case.module, case.loss, case.batch, case.nodes)
    by_call = trace_module(
        case.module, case.loss, case.batch, {"embed": None, "lstm": lambda out: out[1][0]}
    )
    found, expected = (exact_blocks(dag, dag.x, dag.y) for dag in (by_call, by_path))
    assert all(torch.equal(found[pair], expected[pair]) for pair in expected)
    picks = ("logits", lambda out: out["logits"])
    one, other = (
        trace_module(ready(labelled()), "cross_entropy", (X, Y), output=pick) for pick in picks
    )
    assert one.order == other.order == ("body", "head")
