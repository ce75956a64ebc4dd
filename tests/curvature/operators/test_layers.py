"""LayerOperator of modules as users write them, against dense Hessians in shifts that hooks add to
layers' outputs."""

import copy
from collections import OrderedDict

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
from tests.errors import each_row, refusal

CROSS = nn.CrossEntropyLoss()


def far(found, expected):
    """The largest error of a block, relative to the largest block."""
    scale = max(float(block.norm()) for block in expected.values())
    return max(float((found[p] - block).norm()) for p, block in expected.items()) / scale


def agrees(module, nodes=None, loss=CROSS, given=X, target=Y):
    """The operator, whose blocks are those of the oracle, and the oracle's."""
    case = ModuleCase(module, given, target, loss, nodes)
    operator = LayerOperator(*case.problem, nodes)
    expected = hessian_by_hooks(case, operator.nodes)
    assert far(operator.blocks(), expected) < 1e-10
    return operator, expected


def net():
    torch.manual_seed(0)
    return ready(tanh_net(6, 5, 3))


def own(forward):
    return ready(Own(forward, a=nn.Linear(6, 5), b=nn.Linear(5, 5), c=nn.Linear(5, 3)))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("activation", [nn.Tanh(), nn.ReLU()])
def test_metrics_in_half_precision_are_those_of_its_weights_in_double(dtype, activation):
    narrow = nn.Sequential(nn.Linear(6, 9), activation, nn.Linear(9, 3)).to(dtype)
    inputs, targets = torch.randn(20, 6).to(dtype), torch.randn(20, 3).to(dtype)

    def of(module, *data):
        operator = LayerOperator(module, nn.MSELoss(), data, ["0", "2"])
        return inter_layer_metrics(operator)["0", "0"]

    found = of(narrow, inputs, targets)
    exact = of(copy.deepcopy(narrow).double(), inputs.double(), targets.double())
    for name in ("R", "D", "gap"):
        value = getattr(exact, name).value
        assert getattr(found, name).value == pytest.approx(value, rel=0.05), name


# ---------------------------------------------------------- hooks, transforms and states of modules


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_layer_whose_shift_is_normalised_away_has_no_metrics(dtype):
    """What products leave of it is rounding, of which C and D would be of the order of one."""
    parts = nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 3)
    module = nn.Sequential(*parts).to(dtype)
    found = inter_layer_metrics(LayerOperator(module, CROSS, (X[:, :2].to(dtype), Y)))
    for w in ("0", "1", "3"):
        assert found["0", w].R.value == 0 and "numerically zero" in found["0", w].C.reason
    assert all(found[pair].C.value > 0.1 for pair in (("1", "1"), ("1", "3"), ("3", "3")))


def test_a_hook_for_all_modules_is_part_of_them():
    turn = lambda m, _, out: out.sin() if isinstance(m, nn.Linear) else None  # noqa: E731
    handle = register_module_forward_hook(turn)
    try:
        agrees(net())
    finally:
        handle.remove()


def doubled(m, _, out):
    return 2 * out.sin()


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_hook_of_its_own_is_part_of_a_submodule_and_stays(place):
    module = net()
    module[place].register_forward_hook(doubled)
    module[2].register_forward_pre_hook(lambda m, given: (given[0].cos(),))
    agrees(module, "*")
    assert len(module[place]._forward_hooks) == 1 and len(module[2]._forward_pre_hooks) == 1


def test_hooks_of_a_compiled_submodule_are_part_of_it_and_on_a_wrapper_are_refused():
    plain, module = net(), net()
    module[0].compile(backend="eager")
    for m in (plain, module):
        m[0].register_forward_hook(doubled)
    found = LayerOperator(module, CROSS, (X, Y), ["0"]).blocks()
    assert far(found, agrees(plain, ["0"])[1]) < 1e-10
    wrapped = torch.compile(nn.Linear(6, 3).double(), backend="eager")
    wrapped.register_forward_hook(doubled)
    for build in (LayerOperator, ParameterOperator):
        with refusal("has hooks: put them on the module"):
            build(wrapped, CROSS, (X, Y))


def cubic(row):
    return torch.tanh(row).pow(3).sum()


def along_cosine(h):
    return jvp(torch.tanh, (h,), (h.cos(),))[1]


BC = ["b", "c"]
INSIDE = {
    "vmap": (["c"], lambda s, t: s.c(vmap(lambda r: torch.tanh(s.b(torch.tanh(s.a(r)))))(t))),
    "grad": (BC, lambda s, t: s.c(s.b(vmap(grad(cubic))(s.a(t))))),
    "jvp": (BC, lambda s, t: s.c(vmap(along_cosine)(s.b(torch.tanh(s.a(t)))))),
    "a casted input": (BC, lambda s, t: s.c(torch.tanh(s.b(s.a(t.float().double()))))),
}


@each_row("nodes, forward", INSIDE)
def test_functional_transforms_and_casts_inside(nodes, forward):
    agrees(own(forward), nodes)


PLACES = {
    "a number in a dictionary": (lambda m: m.by_name, "s"),
    "a number in a list": (lambda m: m.listed, 0),
    "an attribute": (vars, "scale"),
    "a buffer": (lambda m: m._buffers, "level"),
}


def assert_restored(module):
    agrees(module.double(), ["a", "h"], given=x(4, 3), target=classes(4, 2))
    assert not any(p.grad is not None for p in module.parameters())


@each_row("held, key", PLACES)
def test_a_module_that_changes_a_number_between_two_layers_and_puts_it_back(held, key):
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
    assert_restored(module)


def cyclic(m, t):
    """A layer that counts its calls, and starts again after the third."""
    u = m.a(t)
    for _ in range(3):
        u = torch.tanh(m.layer(u) * (0.5, 1.0, 3.0)[m.i])
        m.i = (m.i + 1) % 3
    return m.h(u)


def forgetting(m, t):
    """A recurrent cell that forgets at its end what it keeps of its batch."""
    u = torch.tanh(m.a(t))
    m.kept = u if m.kept is None else m.kept + u
    out, m.kept = m.h(m.kept), None
    return out


@pytest.mark.parametrize("forward", [cyclic, forgetting])
def test_a_module_that_starts_each_call_alike(forward):
    parts = {"a": nn.Linear(3, 4), "layer": nn.Linear(4, 4), "h": nn.Linear(4, 2)}
    assert_restored(Own(forward, **parts, i=0, kept=None))


# ------------------------------------------------------------------ calls that follow from the data


def by_rows(m, t):
    return torch.stack([m.c(m.b(torch.tanh(m.a(row)))) for row in t])


def by_steps(m, t):
    """As many calls as the sequence is long."""
    h = torch.zeros(len(t), 5).to(t)
    for step in t.unbind(1):
        h = torch.tanh(m.a(step) + m.b(h))
    return m.c(h)


@pytest.mark.parametrize("seed", [0, 17, 22, 33])
def test_a_batch_is_not_cut_where_its_parts_have_other_calls(seed):
    """Identity 4 alone accepted 13 of 150 such networks in float32, with wrong matrices."""
    torch.manual_seed(seed)
    module = own(by_rows).float()
    given = x(12, 6).float(), classes(12)
    with pytest.warns(RuntimeWarning, match="however it is cut"):
        cut = LayerOperator(module, CROSS, given, ["a"], memory_budget=3000)
    assert relative(cut.dense(), LayerOperator(module, CROSS, given, ["a"]).dense()) < 1e-6


def by_chunks(m, t):
    """Whose pieces of fewer examples have one call each."""
    hidden = [torch.tanh(m.a(chunk)).expand(40, -1, -1).mean(0) for chunk in t.split(32)]
    return torch.cat([m.c(m.b(h)) for h in hidden])


def test_a_batch_of_which_pieces_alone_are_evaluated_is_not_cut_there_either():
    module, given = own(by_chunks), (x(96, 6), classes(96))
    with pytest.warns(RuntimeWarning, match="however it is cut"):
        cut = LayerOperator(module, CROSS, given, ["a"], memory_budget=3000)
    assert relative(cut.dense(), LayerOperator(module, CROSS, given, ["a"]).dense()) < 1e-12


def test_other_numbers_of_calls_are_named_in_parts_and_accepted_in_other_batches():
    with refusal(r"layer 'a' has 3 calls for a batch and 1 for a part of it"):
        LayerOperator(own(by_rows), CROSS, [(X, Y), (X[:3], Y[:3])])
    sequences = [(x(4, 2, 6), Y), (x(4, 3, 6), Y)]
    operator = LayerOperator(own(by_steps), CROSS, sequences, ["a"])
    assert operator.nodes == ("a", "a#2")
    assert operator.checks["4 weights"].startswith("right")


# -------------------------------------------------------------- batches that cannot be cut, experts


def routed(m, t):
    h = torch.tanh(m.stem(t))
    chosen, out = m.gate(h).argmax(1), torch.zeros_like(h)
    for i, expert in enumerate(m.experts):
        out[chosen == i] = torch.tanh(expert(h[chosen == i]))
    return m.head(h + out)


def experts():
    parts = {"stem": nn.Linear(6, 40), "gate": nn.Linear(40, 2), "head": nn.Linear(40, 3)}
    both = nn.ModuleList([nn.Linear(40, 40), nn.Linear(40, 40)])
    return ready(Own(routed, **parts, experts=both)), x(16, 6), classes(16), ["stem"]


def mixture():
    case = make_module("mixture")
    return case.module, case.given, case.target, ["stem", "gate"]


@pytest.mark.parametrize("make", [experts, mixture])
def test_experts_that_see_some_rows(make):
    module, given, target, nodes = make()
    nodes = [*nodes, "experts.0", "experts.1"]
    operator, expected = agrees(module, nodes, given=given, target=target)
    assert verify(operator).ok
    for pair, found in inter_layer_metrics(operator).items():
        assert found.R.value == pytest.approx(float(expected[pair].norm()), rel=1e-9, abs=1e-14)


def sparing(m, t):
    """An expert for the one example whose first feature is barely above a bound: a small step
    leaves it none."""
    h = m.stem(t)
    rows = (h[:, 0] > m.bound).nonzero()[:, 0]
    return m.head(h.index_add(0, rows, torch.tanh(m.expert(h[rows]))) if len(rows) else h)


def test_an_expert_that_a_small_step_leaves_without_examples():
    parts = {"stem": nn.Linear(6, 4), "expert": nn.Linear(4, 4), "head": nn.Linear(4, 3)}
    module, given = ready(Own(sparing, **parts, bound=torch.tensor(0.0))), x(5, 6)
    with torch.no_grad():
        module.bound = module.stem(given)[:, 0].max() - 1e-4
    assert verify(LayerOperator(module, CROSS, (given, classes(5)), ["stem", "expert"])).ok


def test_a_batch_of_one_size_has_perturbations_of_all_its_rows():
    """Of four examples and no other number."""
    parts = {"a": nn.Linear(6, 5), "c": nn.Linear(5, 3), "gain": nn.Parameter(torch.rand(4, 5))}
    module = ready(Own(lambda m, t: m.c(torch.tanh(m.a(t)) * m.gain), **parts))
    operator = LayerOperator(module, CROSS, (X, Y), ["a", "c"])
    assert operator.sizes == {"a": 20, "c": 12} and verify(operator).ok


@pytest.mark.parametrize("named", [False, True])
def test_an_input_that_belongs_to_no_example(named):
    """A table, with as many rows as there are examples, in which the module looks its tokens up."""
    body = lambda m, tokens, table: m.head(torch.tanh(m.body(table[tokens].sum(1))))  # noqa: E731
    module = ready(Own(body, body=nn.Linear(3, 4), head=nn.Linear(4, 2)))
    tokens, rows = torch.tensor([[0, 1], [2, 3], [3, 1], [0, 0]]), x(4, 3)
    given = {"tokens": tokens, "table": rows} if named else (tokens, rows)
    operator, _ = agrees(module, ["body"], given=given, target=classes(4, 2))
    assert operator.sizes == {"body": 4}


# ------------------------------------------------------------------ losses


class Focal(nn.CrossEntropyLoss):
    def forward(self, output, target):
        loss = F.cross_entropy(output, target, reduction="none")
        return ((1 - torch.exp(-loss)) ** 2 * loss).mean()


def hooked_loss():
    loss = nn.CrossEntropyLoss()
    loss.register_forward_hook(lambda m, _, out: 3 * out)
    return loss


def patched_loss():
    return patched(nn.CrossEntropyLoss(), lambda own: lambda f, y: own(2 * f, y))


@pytest.mark.parametrize("make", [Focal, hooked_loss, patched_loss, nn.MSELoss])
def test_a_loss_derived_from_torchs_is_measured_as_what_it_computes(make):
    agrees(net(), loss=make(), target=x(4, 3) if make is nn.MSELoss else Y)


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
    agrees(own(masked), ["a", "b", "c"], masked_loss)
    module = own(weighted)
    agrees(module, ["b", "c"], weighted_loss)  # the weight depends on neither layer
    with refusal("a part of the network stops or changes gradients"):
        LayerOperator(module, weighted_loss, (X, Y), ["a", "c"])


def test_a_loss_of_what_the_module_keeps_of_its_call():
    def keeping(s, t):
        h = torch.tanh(s.a(t))
        kept = h.detach() if s.detached else h
        s.kept = kept.pow(4).sum(1).mean()
        return s.c(s.b(h))

    module = own(keeping)
    loss = lambda f, y: F.cross_entropy(f, y) + module.kept  # noqa: E731
    module.detached = False
    agrees(module, ["a", "b", "c"], loss)
    module.detached = True
    with refusal("a part of the network stops or changes gradients"):
        LayerOperator(module, loss, (X, Y), ["a", "b", "c"])


@refusal("uses an operation without a second derivative")
def test_a_loss_without_a_second_derivative_is_named():
    labels = torch.tensor([[0, -1, -1], [1, 2, -1], [2, -1, 0], [0, 1, -1]])
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
    by_path = LayerOperator(*case.problem, case.nodes)
    by_call = LayerOperator(*case.problem, {"embed": None, "lstm": lambda out: out[1][0]})
    assert torch.equal(by_path.dense(), by_call.dense())
    module = own(lambda m, t: {"loss": None, "logits": m.c(m.b(m.a(t)))})
    options = (module, "cross_entropy", (X, Y), ["b"])
    one = LayerOperator(*options, output="logits")
    other = LayerOperator(*options, output=lambda out: out["logits"])
    assert torch.equal(one.dense(), other.dense())


def test_half_precision_layers_next_to_a_wider_output():
    inner, given = tanh_net(3, 4, 2).bfloat16(), x(4, 3).bfloat16()
    upcast = Own(lambda m, t: m.net(t).float(), net=inner)
    operator = LayerOperator(upcast, CROSS, (given, classes(4, 2)), ["net.0", "net.2"])
    wide = copy.deepcopy(inner).double()
    exact = LayerOperator(wide, CROSS, (given.double(), classes(4, 2)))
    assert relative(operator.dense().double(), exact.dense()) < 0.05


class Single(Own):
    def __deepcopy__(self, memo):
        raise TypeError("there is one of me")


def test_a_module_that_refuses_to_be_copied_is_measured():
    parts = {"body": nn.Linear(6, 5), "head": nn.Linear(5, 3)}
    module = Single(lambda m, t: m.head(torch.tanh(m.body(t))), **parts).double()
    assert verify(LayerOperator(module, "cross_entropy", (X, Y)), generator=seeded()).ok


@pytest.mark.parametrize("loss", [nn.MSELoss(), nn.BCEWithLogitsLoss()])
def test_a_module_that_ends_in_squeeze(loss):
    """It has no output for one example alone."""
    parts = {"a": nn.Linear(3, 4), "h": nn.Linear(4, 1)}
    module = ready(Own(lambda m, t: m.h(torch.tanh(m.a(t))).squeeze(), **parts))
    agrees(module, ["a", "h"], loss, x(4, 3), classes(4, 2).double())


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


def calls(forward):
    parts = {"layer": nn.Linear(6, 4), "head": nn.Linear(4, 3), "unused": nn.Linear(6, 3)}
    return Own(forward, **parts, last=0.0).double()


def build(module, nodes=None, given=X, target=Y, loss="cross_entropy"):
    return LayerOperator(module, loss, (given, target), nodes)


def stateful(m, t):
    h = m.layer(t)
    shifted, m.last = h + m.last, h.detach().mean()
    return m.head(shifted)


def test_calls_that_differ_are_refused():
    with refusal("draws at random"):
        build(calls(lambda m, t: m.head(F.dropout(m.layer(t), 0.5))))
    with refusal("keeps values from one call|held outside|differ"):
        build(calls(stateful))


def test_wrong_names_of_layers_are_refused():
    plain, last = calls(lambda m, t: m.head(m.layer(t))), ready(recurrent())
    given, target = x(3, 2, 2), classes(3, 2)
    with refusal("is never called"):
        build(plain, ["layer", "unused"])
    with refusal("nearest is 'layer'"):
        build(plain, ["layr"])
    with refusal("nodes is empty"):
        build(plain, [])
    with refusal("names or patterns of submodules, found 3"):
        build(plain, 3)
    with refusal("one of the tensors of the output"):
        build(last, {"lstm": lambda out: 2 * out[0]}, given, target)
    with refusal("has no '7'"):
        build(last, {"lstm": "7"}, given, target)


def test_wrong_modules_are_refused():
    with refusal("expected an nn.Module, found builtin"):
        build(torch.tanh)
    with refusal("has no weights yet"):
        build(nn.Sequential(nn.LazyLinear(3)))
    with refusal("meta device"):
        build(net().to("meta"))


def test_wrong_data_are_refused():
    module = net()
    with refusal(r"expected one batch \(input, target\)"):
        LayerOperator(module, "cross_entropy", X)
    with refusal("the loss failed|failed on"):
        build(module, target=None)
    with refusal("not finite|empty|no examples"):
        build(module, given=X[:0], target=Y[:0])
    with refusal("not finite"):
        build(module, given=X / 0)
    with refusal(r"failed on .*\(4, 2\) float64"):
        build(module, given=X[:, :2])


def test_layers_that_do_not_move_the_loss_are_named():
    dead = calls(lambda m, t: (m.unused(t), m.head(m.layer(t)))[1])
    operator = build(dead, ["layer", "unused"])
    assert "not reached by the examples compared: unused" in repr(operator)


@pytest.mark.parametrize("kind", [LayerOperator, ParameterOperator])
def test_autocast_is_refused(kind):
    with torch.autocast("cpu", dtype=torch.bfloat16), refusal("autocast is on"):
        kind(net().float(), "cross_entropy", (X.float(), Y))


def test_examples_that_mix_are_a_function_of_one_batch_and_not_of_parts():
    mixing = calls(lambda m, t: m.head(m.layer(t) - m.layer(t).mean(0)))
    agrees(mixing, ["head"])
    with refusal("not a weighted mean over its parts"):
        LayerOperator(mixing, CROSS, [(X, Y), (-X, Y)], ["head"])


def test_several_vectors_have_a_copy_of_the_batch_each_where_its_examples_are_independent():
    def products(module, *batch, **options):
        operator = LayerOperator(module, CROSS, batch, **options)
        vectors = torch.randn(operator.shape[0], 9, generator=seeded()).double()
        alone = torch.stack([operator @ v for v in vectors.mT], 1)
        assert relative(operator @ vectors, alone) < 1e-12
        return repr(operator)

    assert "batch repeated" in products(net(), X, Y)
    mixing = ready(nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 3)))
    assert "one vector at a time (their products differ)" in products(mixing.train(), X, Y)
