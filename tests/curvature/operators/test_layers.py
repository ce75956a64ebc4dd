"""LayerOperator of modules as users write them, against dense Hessians in shifts that hooks add to
layers' outputs."""

import copy
from collections import OrderedDict
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import grad, jvp, vmap
from torch.nn.modules.module import register_module_forward_hook

from runner.curvature import LayerOperator, ParameterOperator, inter_layer_metrics, verify
from tests.curvature.cases import Own, X, Y, patched
from tests.curvature.module_cases import (
    ModuleCase,
    classes,
    hessian_by_hooks,
    make_module,
    ready,
    recurrent,
    x,
)
from tests.curvature.oracles import relative
from tests.draws import seeded, tanh_net
from tests.errors import refusal

CROSS = nn.CrossEntropyLoss()


def far(found, expected):
    """The largest error of a block, relative to the largest block."""
    scale = max(float(block.norm()) for block in expected.values())
    return max(float((found[p] - block).norm()) for p, block in expected.items()) / scale


def agrees(case, **options):
    """The operator, whose blocks are those of the oracle."""
    operator = LayerOperator(*case.problem, case.nodes, **options)
    assert far(operator.blocks(), hessian_by_hooks(case, operator.nodes)) < 1e-10
    return operator


def net():
    torch.manual_seed(0)
    return ready(tanh_net(6, 5, 3))


def own(forward):
    torch.manual_seed(0)
    return ready(Own(forward, a=nn.Linear(6, 5), b=nn.Linear(5, 5), c=nn.Linear(5, 3)))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("activation", [nn.Tanh(), nn.ReLU()])
def test_metrics_in_half_precision_are_those_of_its_weights_in_double(dtype, activation):
    torch.manual_seed(0)
    narrow = nn.Sequential(nn.Linear(6, 9), activation, nn.Linear(9, 3)).to(dtype)
    inputs, targets = torch.randn(20, 6).to(dtype), torch.randn(20, 3).to(dtype)
    operator = LayerOperator(narrow, nn.MSELoss(), (inputs, targets), ["0", "2"])
    found = inter_layer_metrics(operator)["0", "0"]
    data = inputs.double(), targets.double()
    wide = copy.deepcopy(narrow).double()
    exact = inter_layer_metrics(LayerOperator(wide, nn.MSELoss(), data, ["0", "2"]))["0", "0"]
    for name in ("R", "D", "gap"):
        value = getattr(exact, name).value
        assert getattr(found, name).value == pytest.approx(value, rel=0.05), name


# ---------------------------------------------------------- hooks, transforms and states of modules


def test_a_hook_for_all_modules_is_part_of_them():
    turn = lambda m, _, out: out.sin() if isinstance(m, nn.Linear) else None  # noqa: E731
    handle = register_module_forward_hook(turn)
    try:
        agrees(ModuleCase(net(), X, Y, F.cross_entropy))
    finally:
        handle.remove()


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_hook_of_its_own_is_part_of_a_submodule_and_stays(place):
    module = net()
    module[place].register_forward_hook(lambda m, _, out: 2 * out.sin())
    module[2].register_forward_pre_hook(lambda m, given: (given[0].cos(),))
    agrees(ModuleCase(module, X, Y, F.cross_entropy, "*"))
    assert len(module[place]._forward_hooks) == 1 and len(module[2]._forward_pre_hooks) == 1


def test_hooks_of_a_compiled_submodule_are_part_of_it_and_on_a_wrapper_are_refused():
    plain, module = net(), net()
    module[0].compile(backend="eager")
    for m in (plain, module):
        m[0].register_forward_hook(lambda m, _, out: 2 * out.sin())
    found = LayerOperator(module, "cross_entropy", (X, Y), ["0"]).blocks()
    expected = hessian_by_hooks(ModuleCase(plain, X, Y, F.cross_entropy), ["0"])
    assert far(found, expected) < 1e-10
    wrapped = torch.compile(nn.Linear(6, 3).double(), backend="eager")
    wrapped.register_forward_hook(lambda module, given, out: out * 10)
    for build in (LayerOperator, ParameterOperator):
        with refusal("has hooks: put them on the module"):
            build(wrapped, CROSS, (X, Y))


INSIDE = {
    "vmap": lambda s, t: s.c(vmap(lambda row: torch.tanh(s.b(torch.tanh(s.a(row)))))(t)),
    "grad": lambda s, t: s.c(s.b(vmap(grad(lambda row: torch.tanh(row).pow(3).sum()))(s.a(t)))),
    "jvp": lambda s, t: s.c(
        vmap(lambda h: jvp(torch.tanh, (h,), (h.cos(),))[1])(s.b(torch.tanh(s.a(t))))
    ),
    "a casted input": lambda s, t: s.c(torch.tanh(s.b(s.a(t.float().double())))),
}


@pytest.mark.parametrize("name", INSIDE)
def test_functional_transforms_and_casts_inside(name):
    agrees(ModuleCase(own(INSIDE[name]), X, Y, CROSS, ["b", "c"] if name != "vmap" else ["c"]))


PLACES = {
    "a number in a dictionary": (lambda m: m.by_name, "s"),
    "a number in a list": (lambda m: m.listed, 0),
    "an attribute": (vars, "scale"),
    "a buffer": (lambda m: m._buffers, "level"),
}


def switching(place):
    """A network that changes a number between two layers and puts it back; it counts its calls."""
    held, key = PLACES[place]

    def forward(m, t):
        m.calls += 1
        u = torch.tanh(held(m)[key] * m.a(t))
        held(m)[key] = 3 * held(m)[key]
        v = torch.tanh(held(m)[key] * m.b(u))
        held(m)[key] = held(m)[key] / 3
        return m.h(v)

    layers = {"a": nn.Linear(3, 4), "b": nn.Linear(4, 4), "h": nn.Linear(4, 2)}
    scale = torch.tensor(1.0).double()
    module = Own(forward, **layers, calls=0, by_name={"s": 1.0}, listed=[1.0], scale=scale)
    module.register_buffer("level", scale.clone())
    return module


class Cyclic(nn.Module):
    """A layer that counts its calls, and starts again after the third."""

    def __init__(self):
        super().__init__()
        self.a, self.l, self.h, self.i = nn.Linear(3, 4), nn.Linear(4, 4), nn.Linear(4, 2), 0

    def forward(self, t):
        u = self.a(t)
        for _ in range(3):
            u = torch.tanh(self.l(u) * (0.5, 1.0, 3.0)[self.i])
            self.i = (self.i + 1) % 3
        return self.h(u)


def forgetting(m, t):
    """A recurrent cell that forgets at its end what it keeps of its batch."""
    u = torch.tanh(m.a(t))
    m.kept = u if m.kept is None else m.kept + u
    out, m.kept = m.h(m.kept), None
    return out


STATES = {place: partial(switching, place) for place in PLACES} | {"cyclic": Cyclic}
STATES |= {"forgetting": lambda: Own(forgetting, a=nn.Linear(3, 4), h=nn.Linear(4, 2), kept=None)}


@pytest.mark.parametrize("name", STATES)
def test_a_module_that_puts_back_what_it_changes(name):
    module = STATES[name]().double()
    agrees(ModuleCase(module, x(4, 3), classes(4, 2), CROSS, ["a", "h"]))
    assert not any(p.grad is not None for p in module.parameters())


# -------------------------------------------------------------- batches that cannot be cut, experts


def routed(m, t):
    h = torch.tanh(m.stem(t))
    chosen, out = m.gate(h).argmax(1), torch.zeros_like(h)
    for i, expert in enumerate(m.experts):
        out[chosen == i] = torch.tanh(expert(h[chosen == i]))
    return m.head(h + out)


def sparing(m, t):
    """An expert for the one example whose first feature is barely above a bound: a small step
    leaves it none."""
    h = m.stem(t)
    rows = (h[:, 0] > m.bound).nonzero()[:, 0]
    return m.head(h.index_add(0, rows, torch.tanh(m.expert(h[rows]))) if len(rows) else h)


def experts():
    torch.manual_seed(0)
    parts = {"stem": nn.Linear(6, 40), "gate": nn.Linear(40, 2), "head": nn.Linear(40, 3)}
    both = nn.ModuleList([nn.Linear(40, 40), nn.Linear(40, 40)])
    module = ready(Own(routed, **parts, experts=both))
    return ModuleCase(module, x(16, 6), classes(16), CROSS, ["stem", "experts.0", "experts.1"])


def mixture():
    case, nodes = make_module("mixture"), ["stem", "gate", "experts.0", "experts.1"]
    return ModuleCase(case.module, case.given, case.target, case.loss, nodes)


def fixed_batch():
    """Of four examples and no other number."""
    torch.manual_seed(0)
    parts = {"a": nn.Linear(6, 5), "c": nn.Linear(5, 3), "gain": nn.Parameter(torch.rand(4, 5))}
    module = ready(Own(lambda m, t: m.c(torch.tanh(m.a(t)) * m.gain), **parts))
    return ModuleCase(module, X, Y, CROSS, ["a", "c"])


def table(name):
    """A table, with as many rows as there are examples, in which the module looks its tokens up."""
    torch.manual_seed(0)
    body = lambda m, tokens, table: m.head(torch.tanh(m.body(table[tokens].sum(1))))  # noqa: E731
    module = ready(Own(body, body=nn.Linear(3, 4), head=nn.Linear(4, 2)))
    tokens, rows = torch.tensor([[0, 1], [2, 3], [3, 1], [0, 0]]), x(4, 3)
    given = {"tokens": tokens, "table": rows} if name else (tokens, rows)
    return ModuleCase(module, given, classes(4, 2), F.cross_entropy, ["body"])


@pytest.mark.parametrize("case", [experts, mixture], ids=["experts", "mixture"])
def test_experts_that_see_some_rows(case):
    operator = agrees(case())
    expected = hessian_by_hooks(case(), operator.nodes)
    assert verify(operator).ok
    for pair, found in inter_layer_metrics(operator).items():
        assert found.R.value == pytest.approx(float(expected[pair].norm()), rel=1e-9, abs=1e-14)


def test_an_expert_that_a_small_step_leaves_without_examples():
    parts = {"stem": nn.Linear(6, 4), "expert": nn.Linear(4, 4), "head": nn.Linear(4, 3)}
    module, given = ready(Own(sparing, **parts, bound=torch.tensor(0.0))), x(5, 6)
    with torch.no_grad():
        module.bound = module.stem(given)[:, 0].max() - 1e-4
    operator = LayerOperator(module, CROSS, (given, classes(5)), ["stem", "expert"])
    assert verify(operator).ok


def test_a_batch_of_one_size_has_perturbations_of_all_its_rows():
    operator = LayerOperator(*(lambda c: (*c.problem, c.nodes))(fixed_batch()))
    assert operator.sizes == {"a": 20, "c": 12} and verify(operator).ok
    with refusal(r"cannot be cut|cannot be measured"):
        case = fixed_batch()
        LayerOperator(*case.problem, case.nodes, part="empirical_fisher") @ (
            torch.ones(32, dtype=torch.float64)
        )


@pytest.mark.parametrize("name", ["", "table"])
def test_an_input_that_belongs_to_no_example(name):
    case = table(name)
    operator = LayerOperator(*case.problem, case.nodes)
    assert operator.sizes == {"body": 4}
    assert far(operator.blocks(), hessian_by_hooks(case, operator.nodes)) < 1e-10


# ------------------------------------------------------------------ losses


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
    "squares": (nn.MSELoss, x(4, 3)),
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_derived_from_torchs_is_measured_as_what_it_computes(name):
    loss, target = LOSSES[name]
    agrees(ModuleCase(net(), X, target, loss()))


class Both(OrderedDict):
    """Every field is an item and an attribute, as of Hugging Face's outputs."""

    def __init__(self, **fields):
        super().__init__(fields)
        vars(self).update(fields)


def masked(s, t):
    """Logits next to a mask of the input."""
    return Both(logits=s.c(s.b(torch.tanh(s.a(t)))), keep=t[:, 0] > 0)


def masked_loss(output, target):
    return (F.cross_entropy(output.logits, target, reduction="none") * output.keep).mean()


def weighted(s, t):
    """Logits next to a weight that the loss detaches."""
    h = torch.tanh(s.a(t))
    return {"logits": s.c(s.b(h)), "keep": h[:, 0].exp()}


def weighted_loss(output, target):
    each = F.cross_entropy(output["logits"], target, reduction="none")
    return (each * output["keep"].detach()).mean()


def test_a_mask_of_the_output_and_a_weight_that_the_loss_detaches():
    agrees(ModuleCase(own(masked), X, Y, masked_loss, ["a", "b", "c"]))
    case = ModuleCase(own(weighted), X, Y, weighted_loss, ["b", "c"])
    agrees(case)  # the weight depends on neither layer
    with refusal("a part of the network stops or changes gradients"):
        LayerOperator(case.module, weighted_loss, (X, Y), ["a", "c"])


def keeping(how):
    def forward(s, t):
        h = torch.tanh(s.a(t))
        s.kept = {"graph": h, "detached": h.detach()}[how].pow(4).sum(1).mean()
        return s.c(s.b(h))

    module = own(forward)
    return ModuleCase(
        module, X, Y, lambda f, y: F.cross_entropy(f, y) + module.kept, ["a", "b", "c"]
    )


def test_a_loss_of_what_the_module_keeps_of_its_call():
    agrees(keeping("graph"))
    with refusal("a part of the network stops or changes gradients"):
        agrees(keeping("detached"))


def test_a_loss_without_a_second_derivative_is_named():
    labels = torch.tensor([[0, -1, -1], [1, 2, -1], [2, -1, 0], [0, 1, -1]])
    with refusal("uses an operation without a second derivative"):
        LayerOperator(net(), nn.MultiLabelMarginLoss(), (X, labels))


# ------------------------------------------------------------------ modes, picks, precisions


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("kind", [LayerOperator, ParameterOperator])
def test_operators_are_the_same_in_every_gradient_mode(mode, kind):
    module = net()
    plain = kind(module, "cross_entropy", (X, Y)).dense()
    with mode():
        inside = kind(module, "cross_entropy", (X.clone(), Y)).dense()
    assert relative(inside, plain) < 1e-14


def test_a_callable_or_a_path_picks_a_tensor_of_an_output():
    case = make_module("lstm hidden state")
    by_path = LayerOperator(*case.problem, case.nodes).blocks()
    nodes = {"embed": None, "lstm": lambda out: out[1][0]}
    by_call = LayerOperator(*case.problem, nodes).blocks()
    assert all(torch.equal(by_call[pair], block) for pair, block in by_path.items())
    labelled = own(lambda m, t: {"loss": None, "logits": m.c(m.b(m.a(t)))})
    picks = ("logits", lambda out: out["logits"])
    one, other = (
        LayerOperator(labelled, "cross_entropy", (X, Y), ["b"], output=p).dense() for p in picks
    )
    assert torch.equal(one, other)


def test_half_precision_layers_next_to_a_wider_output():
    inner = tanh_net(3, 4, 2).bfloat16()
    upcast = Own(lambda m, t: m.net(t).float(), net=inner)
    operator = LayerOperator(upcast, CROSS, (x(4, 3).bfloat16(), classes(4, 2)), ["net.0", "net.2"])
    exact = LayerOperator(
        copy.deepcopy(inner).double(), CROSS, (operator.data.first.input.double(), classes(4, 2))
    )
    assert relative(operator.dense().double(), exact.dense()) < 0.05


def test_a_module_that_refuses_to_be_copied_is_measured():
    class Single(Own):
        def __deepcopy__(self, memo):
            raise TypeError("there is one of me")

    torch.manual_seed(0)
    parts = {"body": nn.Linear(6, 5), "head": nn.Linear(5, 3)}
    module = Single(lambda m, t: m.head(torch.tanh(m.body(t))), **parts).double()
    assert verify(LayerOperator(module, "cross_entropy", (X, Y)), generator=seeded()).ok


@pytest.mark.parametrize("loss", [nn.MSELoss(), nn.BCEWithLogitsLoss()])
def test_a_module_that_ends_in_squeeze(loss):
    """It has no output for one example alone."""
    parts = {"a": nn.Linear(3, 4), "h": nn.Linear(4, 1)}
    module = ready(Own(lambda m, t: m.h(torch.tanh(m.a(t))).squeeze(), **parts))
    agrees(ModuleCase(module, x(4, 3), (torch.arange(4) % 2).double(), loss, ["a", "h"]))


def test_sequences_with_examples_along_another_dimension():
    parts = {"e": nn.Embedding(7, 3), "h": nn.Linear(3, 7)}
    module = ready(Own(lambda m, t: m.h(torch.tanh(m.e(t))), **parts))
    tokens, labels = torch.randint(7, (4, 3)), torch.randint(7, (4, 3))
    loss = lambda o, y: F.cross_entropy(o.reshape(-1, 7), y.reshape(-1))  # noqa: E731
    one = LayerOperator(module, loss, (tokens, labels), batch_dim=1)
    other = LayerOperator(module, loss, (tokens.mT.contiguous(), labels.mT.contiguous()))
    assert one.sizes == other.sizes == {"e": 12, "h": 28}
    assert relative(one.dense(), other.dense()) < 1e-12


# ------------------------------------------------------------------ mistakes


def of(module, given=X, target=Y, loss="cross_entropy", nodes=None):
    return lambda: LayerOperator(module(), loss, (given, target), nodes)


def calls(forward):
    parts = {"layer": nn.Linear(6, 4), "head": nn.Linear(4, 3), "unused": nn.Linear(6, 3)}
    return lambda: Own(forward, **parts, last=0.0).double()


def stateful(m, t):
    h = m.layer(t)
    shifted, m.last = h + m.last, h.detach().mean()
    return m.head(shifted)


TIME = x(3, 2, 2), classes(3, 2)
MISTAKES = {
    "random": (of(calls(lambda m, t: m.head(F.dropout(m.layer(t), 0.5)))), "draws at random"),
    "stateful": (of(calls(stateful)), "keeps values from one call|held outside|differ"),
    "uncalled": (of(calls(lambda m, t: m.head(m.layer(t))), nodes=["layer", "unused"]),
                 "is never called"),
    "name": (of(calls(lambda m, t: m.head(m.layer(t))), nodes=["layr"]), "nearest is 'layer'"),
    "no nodes": (of(net, nodes=[]), "nodes is empty"),
    "no pair": (lambda: LayerOperator(net(), "cross_entropy", X),
                r"expected one batch \(input, target\)"),
    "no module": (of(lambda: torch.tanh), "expected an nn.Module, found builtin"),
    "no names": (of(net, nodes=3), "names or patterns of submodules, found 3"),
    "lazy": (of(lambda: nn.Sequential(nn.LazyLinear(3)), X, X, "mse"), "has no weights yet"),
    "no target": (of(net, X, None), "the loss failed|failed on"),
    "empty": (of(net, X[:0], Y[:0]), "not finite|empty|no examples"),
    "nan": (of(net, X / 0), "not finite"),
    "width": (of(net, X[:, :2]), r"failed on .*\(4, 2\) float64"),
    "meta": (of(lambda: net().to("meta")), "meta device"),
    "made tensor": (of(lambda: ready(recurrent()), *TIME, nodes={"lstm": lambda out: 2 * out[0]}),
                    "one of the tensors of the output"),
    "path": (of(lambda: ready(recurrent()), *TIME, nodes={"lstm": "7"}), "has no '7'"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_told_in_a_line(name):
    make, message = MISTAKES[name]
    with refusal(message):
        make()


def test_layers_that_do_not_move_the_loss_are_named():
    dead = calls(lambda m, t: (m.unused(t), m.head(m.layer(t)))[1])()
    operator = LayerOperator(dead, "cross_entropy", (X, Y), ["layer", "unused"])
    assert "not reached by the examples compared: unused" in repr(operator)


def test_autocast_is_refused():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for kind in (LayerOperator, ParameterOperator):
            with refusal("autocast is on"):
                kind(net().float(), "cross_entropy", (X.float(), Y))


def test_examples_that_mix_are_a_function_of_one_batch_and_not_of_parts():
    mixing = calls(lambda m, t: m.head(m.layer(t) - m.layer(t).mean(0)))()
    case = ModuleCase(mixing, X, Y, CROSS, ["head"])
    agrees(case)
    with refusal("not a weighted mean over its parts"):
        LayerOperator(mixing, CROSS, [(X, Y), (-X, Y)], ["head"])
