"""Operators of modules, data and vectors as users have them, next to dense matrices by double
backward."""

import copy
import pickle
from collections import Counter

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils.data import DataLoader, TensorDataset

from runner.curvature import (
    LayerOperator,
    ParameterOperator,
    as_linear_operator,
    trace_estimate,
    verify,
)
from tests.curvature.cases import Own
from tests.curvature.oracles import parameter_matrix, relative
from tests.draws import normal, seeded, tanh_net
from tests.errors import refusal

CROSS = nn.CrossEntropyLoss()
BATCHES = [(normal(n, 3, generator=seeded(n)), torch.arange(n) % 3) for n in (2, 3, 4)]
X, Y = (torch.cat(parts) for parts in zip(*BATCHES, strict=True))
LARGE = 1 << 30


def net():
    torch.manual_seed(0)
    return tanh_net(3, 4, 3).double()


def hessian(module, data=(X, Y), loss=CROSS, **options):
    return ParameterOperator(module, loss, data, **options)


def truth(module, x=X, y=Y, loss=CROSS):
    """The Hessian by double backward."""
    return parameter_matrix("hessian", module, loss, x, y)


def assert_dense(operator, expected):
    assert relative(operator.dense(), expected) < 1e-12


def weighted(module, loss, batches, weights):
    total = 0
    for weight, (x, y) in zip(weights, batches, strict=True):
        total = total + weight * truth(module, x, y, loss)
    return total / sum(weights)


# ------------------------------------------------------------------ the data


class Loader:
    """Read again at each use."""

    def __iter__(self):
        return iter(BATCHES)


FORMS = [(list, LARGE), (tuple, LARGE), (torch.tensor, LARGE), (np.array, 600), (iter, 600)]


@pytest.mark.parametrize("form, budget", FORMS)
def test_weights_of_any_form_are_those_that_are_used(form, budget):
    module, weights = net(), [1.0, 5.0, 2.0]
    operator = hessian(module, Loader(), weights=form(weights), memory_budget=budget)
    assert_dense(operator, weighted(module, CROSS, BATCHES, weights))
    assert "weighed by weights=" in repr(operator)


@pytest.mark.parametrize("weights", ["abc", 3.0, lambda x: 1.0, lambda x, y: "many"])
@refusal("expected weights")
def test_weights_that_are_none_are_refused(weights):
    hessian(net(), BATCHES, weights=weights)


@refusal("other than weights= says: expected what parts .* or one number a batch")
def test_weights_of_batches_that_say_nothing_of_their_parts_are_refused():
    hessian(net(), BATCHES, weights=lambda x, y: 1.0)


@pytest.mark.parametrize("shuffle, budget", [(False, LARGE), (True, 1500)])
def test_a_loader_leaves_the_random_stream_of_the_program(shuffle, budget):
    module, loader = net(), DataLoader(TensorDataset(X, Y), 4, shuffle=shuffle)
    state = torch.get_rng_state()
    operator = hessian(module, loader, memory_budget=budget)
    dense = operator.dense()
    trace_estimate(operator, 4)
    assert torch.equal(state, torch.get_rng_state())
    assert relative(dense, truth(module)) < 1e-12


def test_a_loader_that_draws_is_read_with_other_draws():
    seen = Counter()

    class Shuffled:
        def __iter__(self):
            order = torch.randperm(len(X))
            seen[tuple(order.tolist())] += 1
            return iter(zip(X[order].split(3), Y[order].split(3), strict=True))

    with pytest.warns(RuntimeWarning, match="memory_budget is"):
        operator = hessian(net(), Shuffled(), memory_budget=600)
    operator.gradient()
    assert len(seen) > 1


@pytest.mark.filterwarnings("ignore:memory_budget is")
@pytest.mark.parametrize("draw", ["augmentation", "a batch that is left out"])
@pytest.mark.parametrize("part", ["hessian", "gauss_newton"])
def test_a_loader_that_draws_other_examples_is_refused_at_its_next_pass(draw, part):
    class Drawn:
        def __iter__(self):
            order = torch.randperm(len(X))[:8]
            noise = 1e-3 * torch.randn(len(X), 3)
            x = X + noise if draw == "augmentation" else X
            return iter(zip(x[order].split(4), Y[order].split(4), strict=True))

    operator, v = hessian(net(), Drawn(), part=part, memory_budget=600), torch.ones(31).double()
    operator @ v
    for again in (lambda: operator @ v, operator.gradient, operator.gradient):
        try:
            again()
        except ValueError as error:
            assert "a loader that draws" in str(error)
            return
    pytest.fail("passes over other data went unnoticed")


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("sizes", [(2, 3, 4), (2,), (1,), (1, 4, 4)])
def test_a_loss_of_one_value_for_each_example_in_small_batches(sizes, check):
    if sizes == (1, 4, 4) and not check:
        pytest.skip("whether one value is a scalar is compared with other batches")
    x, y, module = X[: sum(sizes)], Y[: sum(sizes)], net()
    parts = zip(x.split(sizes), y.split(sizes), strict=True)
    each = nn.CrossEntropyLoss(reduction="none")
    assert_dense(hessian(module, list(parts), each, check=check), truth(module, x, y))


def test_all_that_a_module_that_returns_its_loss_is_given_is_its_input():
    def masked(m, x, mask=None):
        each = m.net(x).square()
        return each.mean() if mask is None else (each * mask).mean()

    module, mask = Own(masked, net=net()), normal(len(X), 1)
    expected = truth(module, (X, mask), None, lambda value, y: value)
    for given in [(X, mask), [[X, mask]], ((X, mask), None), ((X,), {"mask": mask})]:
        assert_dense(hessian(module, given, None), expected)
    with refusal(r"\[\(x, None\), \(y, None\)\] for two batches"):
        hessian(module, [X, mask], None)


def test_the_loss_of_a_module_is_picked_of_its_output():
    def both(m, x, labels):
        f = m.net(x)
        return {"loss": CROSS(f, labels), "logits": f}

    module = Own(both, net=net())
    batches = [{"x": X[:4], "labels": Y[:4]}, {"x": X[4:], "labels": Y[4:]}]
    assert_dense(hessian(module, batches, None, output="loss"), truth(module.net))
    with refusal("part='hessian' alone"):
        hessian(module, batches, None, part="gauss_newton", output="loss")


def graphs(*sizes):
    """Rings of these numbers of nodes, and three numbers of each."""
    which = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    nodes = torch.arange(len(which))
    edges = torch.stack([nodes, nodes.roll(1)])
    return (normal(len(which), 3), edges, which), normal(len(sizes), 3)


def test_batches_that_cannot_be_cut_and_differ_in_size_ask_for_weights():
    def pooled(m, x, edges, which):
        h = m.net(x.index_add(0, edges[0], x[edges[1]]))
        return h.new_zeros(int(which.max()) + 1, 3).index_add(0, which, h)

    module, loss = Own(pooled, net=net()), nn.MSELoss()
    batches = [graphs(2, 3, 4), graphs(9, 8)]
    with refusal("differ in size and cannot be cut"):
        hessian(module, batches, loss)
    operator = hessian(module, batches, loss, weights=lambda given, y: len(y))
    assert_dense(operator, weighted(module, loss, batches, [3, 2]))
    equal = [graphs(2, 4), graphs(3, 3)]
    assert_dense(hessian(module, equal, loss), weighted(module, loss, equal, [1, 1]))


@pytest.mark.parametrize("nested", [False, True])
def test_numbers_of_nodes_are_no_weights_that_a_comparison_has_confirmed(nested):
    """A target for each node: both rules say the same, and the loss may weigh classes."""

    def smoothed(m, x, edges, which):
        return m.net(x.index_add(0, edges[0], x[edges[1]]))

    def loss(f, y):
        return CROSS(f, y["labels"] if nested else y)

    module, batches = Own(smoothed, net=net()), []
    for sizes in ((2, 3), (4, 4)):
        given, _ = graphs(*sizes)
        labels = torch.arange(sum(sizes)) % 3
        batches.append((given, {"labels": labels} if nested else labels))
    with refusal("differ in size and cannot be cut"):
        hessian(module, batches, loss)
    operator = hessian(module, batches, loss, weights=lambda given, y: len(given[0]))
    assert_dense(operator, weighted(module, loss, batches, [5, 8]))


# ------------------------------------------------------------------ the module


class Initialised(nn.Module):
    """Takes its shift from the first batch that it sees."""

    def __init__(self):
        super().__init__()
        self.shift, self.done = nn.Parameter(torch.zeros(3).double()), False

    def forward(self, x):
        if not self.done:
            self.shift.data.copy_(-x.mean(0))
            self.done = True
        return x + self.shift


def clipped(m, x):
    with torch.no_grad():
        m.layer.weight.clamp_(-0.1, 0.1)
    return m.layer(x)


def linear():
    return nn.Linear(3, 3).double()


WRITERS = {
    "initialises": lambda: nn.Sequential(Initialised(), net()),
    "clips": lambda: Own(clipped, layer=linear()),
}


@pytest.mark.parametrize("check", [True, "report", False])
@pytest.mark.parametrize("name", WRITERS)
def test_a_module_that_writes_to_its_parameters_is_refused_and_left_as_it_was(name, check):
    module = WRITERS[name]()
    before, flags = copy.deepcopy(module.state_dict()), [dict(vars(m)) for m in module.modules()]
    with refusal("writes to its parameters"):
        hessian(module, check=check)
    assert all(torch.equal(before[k], v) for k, v in module.state_dict().items())
    assert flags == [dict(vars(m)) for m in module.modules()]
    module(X)
    if name == "initialises":
        assert_dense(hessian(module), truth(module))


@pytest.mark.parametrize("registered", [True, False])
def test_a_buffer_that_the_first_call_fills_is_empty_afterwards(registered):
    def centred(m, x):
        if m._buffers.get("centre") is None:
            m.register_buffer("centre", x.mean(0))
        return m.layer(torch.tanh(x - m.centre))

    module = Own(centred, layer=linear())
    if registered:
        module.register_buffer("centre", None)
    plain = Own(lambda m, x: m.layer(torch.tanh(x - X.mean(0))), layer=module.layer)
    operator = hessian(module)
    assert dict(module.named_buffers()) == {}
    assert_dense(operator, truth(plain))


def stepped(m, x):
    """With its weights after a step down a gradient of their own."""
    weight = m.layer.weight
    (slope,) = torch.autograd.grad((x @ weight.mT).square().mean(), weight, create_graph=True)
    return torch.tanh(x @ (weight - 0.1 * slope).mT) + m.layer.bias


def mixed_sparsely(m, x):
    neighbours = torch.eye(len(x)).double().roll(1, 0).to_sparse()
    return torch.sparse.mm(neighbours, torch.tanh(m.layer(x)))


@pytest.mark.parametrize("part", ["hessian", "gauss_newton"])
@pytest.mark.parametrize("forward", [stepped, mixed_sparsely])
def test_networks_that_differentiate_themselves_or_keep_sparse_tensors(forward, part):
    assert verify(hessian(Own(forward, layer=linear()), part=part)).ok


@pytest.mark.parametrize("seed", [0, 3])
def test_a_fixed_draw_of_dropout_is_one_function(seed):
    module = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Tanh(), nn.Linear(8, 3)).double()
    operator = hessian(module, seed=seed)
    torch.manual_seed(seed)
    kept = nn.functional.dropout(torch.ones(len(X), 8).double(), 0.5)
    plain = Own(lambda m, x: m.last(torch.tanh(m.first(x) * kept)), first=module[0], last=module[3])
    assert_dense(operator, truth(plain))
    assert verify(operator).ok


def test_groups_by_the_second_name_of_a_tied_parameter():
    def language(m, tokens):
        return m.decoder(torch.tanh(m.embedding(tokens)))

    module = Own(language, embedding=nn.Embedding(5, 3), decoder=nn.Linear(3, 5)).double()
    module.decoder.weight = module.embedding.weight
    tokens = torch.arange(5)

    def members(groups):
        return hessian(module, (tokens, tokens), groups=groups).layout.members

    assert members(["decoder"]) == {"decoder": ("embedding.weight", "decoder.bias")}
    both = {"e": ("embedding.weight",), "d": ("decoder.bias",)}
    assert members({"e": "embedding", "d": "decoder"}) == both
    with refusal("two groups"):
        members({"e": "embedding", "d": "decoder.weight"})


@pytest.mark.parametrize("kind", ["script", "trace"])
def test_scripted_modules_are_measured_and_keep_their_parameters(kind):
    module = net()
    scripted = torch.jit.script(module) if kind == "script" else torch.jit.trace(module, X)
    assert_dense(hessian(scripted), truth(module))
    for one, other in zip(scripted.parameters(), module.parameters(), strict=True):
        assert one is other or one.data_ptr() == other.data_ptr()


@refusal("no weights yet")
def test_modules_whose_buffers_are_not_there_yet():
    hessian(nn.Sequential(linear(), nn.LazyBatchNorm1d(affine=False)))


# ------------------------------------------------------------------ vectors and results


def test_vectors_of_any_layout_and_none_of_complex_numbers():
    module = net()
    operator, dense, n = hessian(module), truth(module), 31
    wide = normal(2 * n, 80)
    for v in (wide[::2], wide[::2, ::3], wide[:n, 0], wide[::2, 1].expand(3, -1).mT):
        assert relative(operator @ v, dense @ v) < 1e-12
    assert relative(operator @ torch.ones(n, dtype=torch.int64), dense.sum(1)) < 1e-12
    for v in (wide[:n, 0] * 1j, wide[:n] * 1j):
        with refusal("expected a real tensor"):
            operator @ v
    z = torch.complex(wide[:n, 0], wide[:n, 1]).numpy()
    assert np.abs(as_linear_operator(operator) @ z - dense.numpy() @ z).max() < 1e-12


class Stopped(nn.Module):
    """Ctrl-C at a call."""

    def __init__(self):
        super().__init__()
        self.net, self.calls = net(), 10**6

    def forward(self, x):
        self.calls -= 1
        if self.calls == 0:
            raise KeyboardInterrupt
        return self.net(x)


@pytest.mark.parametrize("call", [1, 2, 3])
def test_a_product_that_was_stopped_is_whole_the_next_time(call):
    module = Stopped()
    operator = hessian(module, BATCHES)
    module.calls = call
    with pytest.raises(KeyboardInterrupt):
        operator.dense()
    assert_dense(operator, truth(module))


def test_autocast_is_off_in_products():
    module, data = net().float(), (X.float(), Y)
    ways = [lambda o: o @ torch.ones(31), lambda o: o.gradient(), lambda o: trace_estimate(o).value]
    for way in ways:
        with torch.autocast("cpu"):
            half = module(data[0])
        operator = hessian(module, data)
        with torch.autocast("cpu"):
            found = way(operator)
            assert torch.equal(module(data[0]), half)
        expected = way(hessian(module, data))
        assert torch.equal(torch.as_tensor(found), torch.as_tensor(expected))


def test_a_product_can_be_differentiated_by_its_vector():
    operator, v = hessian(net()), normal(31).requires_grad_()
    (slope,) = torch.autograd.grad(v @ (operator @ v), v)
    assert relative(slope, 2 * (operator @ v.detach())) < 1e-12
    columns = torch.stack([v, 2 * v], 1)
    (slope,) = torch.autograd.grad((operator @ columns)[:, 1].sum(), v)
    assert relative(slope, 2 * operator.dense().sum(0)) < 1e-12
    with torch.no_grad():
        assert not (operator @ v).requires_grad


def test_modules_that_are_sharded_over_processes_are_refused():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        module = net()
        fully_shard(module, mesh=init_device_mesh("cpu", (1,)))
        with refusal("spread over processes: measure the module before"):
            hessian(module)
    finally:
        dist.destroy_process_group()


def test_operators_are_not_pickled():
    operator = hessian(net())
    for take in (pickle.dumps, copy.deepcopy):
        with refusal("build it again", TypeError):
            take(operator)
    assert torch.equal(copy.copy(operator).dense(), operator.dense())


# ------------------------------------------------------------------ layers


T = 4
FLAT = {
    "examples, tokens": lambda h: h.flatten(0, 1),
    "tokens, examples": lambda h: h.transpose(0, 1).flatten(0, 1),
    "lines, examples, columns": lambda h: h.unflatten(1, (2, 2)).transpose(0, 1).flatten(0, 2),
}


def weighed(h):
    """One row for each example (B, T, d): its tokens weighed by their places."""
    return (h * torch.arange(1.0, h.shape[1] + 1).double().view(1, -1, 1)).sin().sum(1)


def tokens(order, inside):
    """Applies its layer to the tokens of all examples in one dimension, and weighs places."""

    def forward(m, x):
        places = torch.arange(x.shape[0] * T).view(-1, T, 1)
        back = FLAT[order](places).flatten().argsort()
        return weighed(m.inside(m.layer(torch.tanh(FLAT[order](x))))[back].view(x.shape))

    return Own(forward, layer=nn.Linear(3, 3), inside=inside).double()


def of_tokens(module, x, y, counts):
    """The dense block of the layer: e (T, d) is added to the tokens of every example."""

    def value(e):
        total = 0
        for a, b in zip(x.split(counts), y.split(counts), strict=True):
            h = module.layer(torch.tanh(a)) + e.view(T, 3)
            h = module.inside(h.flatten(0, 1)).view(a.shape)
            total = total + CROSS(weighed(h), b) * len(b) / len(y)
        return total

    return torch.autograd.functional.hessian(value, torch.zeros(3 * T).double())


PLACES = [([9], LARGE, False), ([1], LARGE, False), ([4, 5], 5000, False), ([9], LARGE, True)]


@pytest.mark.parametrize("counts, budget, statistics", PLACES)
@pytest.mark.parametrize("order", FLAT)
def test_the_tokens_of_an_example_are_found_wherever_they_lie(order, counts, budget, statistics):
    """Also under statistics of the batch."""
    module = tokens(order, nn.BatchNorm1d(3) if statistics else nn.Identity())
    x, y = normal(sum(counts), T, 3), Y[: sum(counts)]
    batches = list(zip(x.split(counts), y.split(counts), strict=True))
    operator = LayerOperator(module, CROSS, batches, ["layer"], memory_budget=budget)
    assert operator.sizes == {"layer": 3 * T}
    within = 1e-10 if statistics else 1e-12
    assert relative(operator.dense(), of_tokens(module, x, y, counts)) < within


@pytest.mark.parametrize("order", FLAT)
@pytest.mark.parametrize("weight, bias", [(0.0, 0.0), (1e-4, 1.0)])
def test_the_tokens_of_a_layer_of_almost_one_output_are_found_by_slopes(order, weight, bias):
    """As of a branch that is initialised to zero."""
    module = tokens(order, nn.Identity())
    with torch.no_grad():
        module.layer.weight *= weight
        module.layer.bias.fill_(bias)
    x, y = normal(9, T, 3), Y[:9]
    operator = LayerOperator(module, CROSS, (x, y), ["layer"])
    assert relative(operator.dense(), of_tokens(module, x, y, [9])) < 1e-12


def test_tokens_are_found_by_outputs_where_a_fixed_draw_changes_slopes():
    module = tokens("tokens, examples", nn.Dropout(0.5))
    operator = LayerOperator(module, CROSS, (normal(9, T, 3), Y[:9]), ["layer"], seed=0)
    assert operator.sizes == {"layer": 3 * T}


def sorted_by_expert(m, x):
    """Each example goes to two of three experts: the rows of a layer are in the order of these."""
    experts = torch.stack([x[:, 0] > 0, torch.ones(len(x)).bool(), x[:, 0] <= 0])
    expert, example = experts.nonzero().T
    h = m.layer(x[example]) * (1.0 + expert[:, None])
    return torch.zeros(len(x), 3).double().index_add(0, example, h.sin())


def test_places_of_rows_are_those_of_examples_from_all_over_a_batch():
    """The first half goes to the same experts, in whose rows each example has a place."""
    x = normal(16, 3)
    x[:8, 0], x[8:, 0] = x[:8, 0].abs(), -x[8:, 0].abs()
    routed = Own(sorted_by_expert, layer=nn.Linear(3, 3)).double()
    assert LayerOperator(routed, CROSS, (x, Y[:1].expand(16)), ["layer"]).sizes == {"layer": 3}


def test_tokens_that_nothing_tells_apart_share_a_perturbation():
    module = tokens("tokens, examples", nn.Identity())
    x, y = torch.ones(4, T, 3).double(), torch.zeros(4).long()
    alike = Own(lambda m, x: m.layer(x.flatten(0, 1)).view(x.shape).mean(1), layer=module.layer)
    assert LayerOperator(alike, CROSS, (x, y), ["layer"]).sizes == {"layer": 3}


def packed(m, x, lengths):
    inside = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    inside = inside._replace(data=m.layer(torch.tanh(inside.data)))
    return weighed(pad_packed_sequence(inside, batch_first=True)[0])


@pytest.mark.parametrize("form", [list, torch.tensor])
@pytest.mark.parametrize("lengths, size", [([3, 3, 3], 9), ([4, 2, 3], 3), ([3, 2, 3], 3)])
def test_packed_sequences_share_a_perturbation_by_time_where_all_have_one_length(
    lengths, size, form
):
    module, x = Own(packed, layer=linear()), normal(3, max(lengths), 3)
    operator = LayerOperator(module, CROSS, ((x, form(lengths)), Y[:3]), ["layer"])
    assert operator.sizes == {"layer": size}
    there = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]

    def value(e):
        h = module.layer(torch.tanh(x)) + e.view(-1, 3)
        return CROSS(weighed(h * there[:, :, None]), Y[:3])

    assert_dense(operator, torch.autograd.functional.hessian(value, torch.zeros(size).double()))


@pytest.mark.parametrize("lengths", [(1, 4), (4, 1), (4, 3)])
@refusal("expected batches of one shape except for their numbers of examples")
def test_batches_of_other_lengths_have_no_common_perturbation(lengths):
    module = Own(lambda m, x: m.layer(torch.tanh(x)).sin().mean(1), layer=linear())
    LayerOperator(module, CROSS, [(normal(4, t, 3), Y[:4]) for t in lengths], ["layer"])


def recurrent(last):
    torch.manual_seed(0)
    parts = {"r": nn.LSTM(3, 4), "h": nn.Linear(4, 2)}
    return Own(lambda m, x: m.h(m.r(x)[0][-1] if last else m.r(x)[0]), **parts).double()


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("time, count", [(5, 6), (6, 6), (1, 6), (5, 1)])
def test_examples_along_the_other_dimension_are_seen_by_the_losses_of_parts(time, count, last):
    module, x, mean = recurrent(last), normal(time, count, 3), nn.MSELoss()
    y = normal(*x.shape[last:2], 2)
    with refusal("along dimension 1 of the input, .* give batch_dim=1"):
        LayerOperator(module, mean, (x, y), ["h"])
    with refusal("give batch_dim=1"):
        LayerOperator(module, lambda f, y: (f - y).square(), (x, y), ["h"])
    if (time, count) == (5, 6):
        with refusal("give batch_dim=1"):
            hessian(module, [(x, y), (x, y)], mean)
    sizes = LayerOperator(module, mean, (x, y), ["h"], batch_dim=1).sizes
    assert sizes == {"h": 2 if last else 2 * time}


def of_means(f, y):
    """The sum over the examples of their means over time."""
    return (f - y).square().sum(0).mean()


@pytest.mark.parametrize("loss", [nn.MSELoss(), of_means])
@pytest.mark.parametrize("inside", [nn.Identity(), nn.BatchNorm1d(3)])
def test_examples_along_the_first_dimension_are_left_there(inside, loss):
    """Each time alone, or statistics of the batch: no other dimension is the better one."""
    module = nn.Sequential(nn.Linear(3, 4), inside, nn.Tanh(), nn.Linear(4, 2)).double()
    x = normal(6, 3, 3)
    operator = LayerOperator(module, loss, (x, x[..., :2].cos()), ["3"])
    assert operator.sizes == {"3": 6}


@refusal("nested tensor, .* pad the sequences")
def test_a_layer_that_returns_a_nested_tensor_is_refused():
    def mean(m, nested):
        return m.last(torch.stack([h.mean(0) for h in m.first(nested).sin().unbind()]))

    given = torch.nested.nested_tensor([normal(2, 3), normal(4, 3)], layout=torch.jagged)
    LayerOperator(Own(mean, first=linear(), last=linear()), CROSS, (given, Y[:2]), ["first"])
