"""Operators of modules, data and vectors as users have them, next to dense matrices by double
backward."""

import copy
import pickle
from collections import Counter

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils.data import DataLoader, TensorDataset

from runner.curvature import (
    LayerOperator,
    ParameterOperator,
    as_linear_operator,
    inter_layer_metrics,
    load,
    save,
    trace_estimate,
    verify,
)
from tests.curvature.cases import Own
from tests.curvature.oracles import parameter_matrix, relative, twice
from tests.draws import seeded
from tests.errors import refusal

CROSS = nn.CrossEntropyLoss()
BATCHES = [
    (torch.randn(n, 3, generator=seeded(n)).double(), torch.arange(n).remainder(3))
    for n in (2, 3, 4)
]
X, Y = (torch.cat(parts) for parts in zip(*BATCHES, strict=True))


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)).double()


def weighted(module, loss, batches, weights):
    shares = [w / sum(weights) for w in weights]
    matrices = [parameter_matrix("hessian", module, loss, x, y) for x, y in batches]
    return sum(share * matrix for share, matrix in zip(shares, matrices, strict=True))


# ------------------------------------------------------------------ the data


class Loader:
    """Read again at each use."""

    def __iter__(self):
        return iter(BATCHES)


FORMS = {"list": list, "tuple": tuple, "tensor": torch.tensor, "array": np.array, "generator": iter}


@pytest.mark.filterwarnings("ignore:memory_budget is")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("budget", [1 << 30, 600])
def test_weights_of_any_form_are_those_that_are_used(form, budget):
    module, weights = net(), [1.0, 5.0, 2.0]
    given = FORMS[form](weights)
    operator = ParameterOperator(module, CROSS, Loader(), weights=given, memory_budget=budget)
    assert relative(operator.dense(), weighted(module, CROSS, BATCHES, weights)) < 1e-12
    assert "weighed by weights=" in repr(operator)


@pytest.mark.parametrize("weights", ["abc", 3.0, lambda x: 1.0, lambda x, y: "many"])
def test_weights_that_are_none_are_refused(weights):
    with refusal("expected weights"):
        ParameterOperator(net(), CROSS, BATCHES, weights=weights)


@pytest.mark.filterwarnings("ignore:memory_budget is")
@pytest.mark.parametrize("budget", [1 << 30, 1500])
@pytest.mark.parametrize("shuffle", [False, True])
def test_a_loader_leaves_the_random_stream_of_the_program(shuffle, budget):
    module, loader = net(), DataLoader(TensorDataset(X, Y), 4, shuffle=shuffle)
    state = torch.get_rng_state()
    operator = ParameterOperator(module, CROSS, loader, memory_budget=budget)
    dense = operator.dense()
    trace_estimate(operator, 4)
    assert torch.equal(state, torch.get_rng_state())
    assert relative(dense, parameter_matrix("hessian", module, CROSS, X, Y)) < 1e-12


def test_a_loader_that_draws_is_read_with_other_draws():
    seen = Counter()

    class Shuffled:
        def __iter__(self):
            order = torch.randperm(len(X))
            seen[tuple(order.tolist())] += 1
            return iter(zip(X[order].split(3), Y[order].split(3), strict=True))

    with pytest.warns(RuntimeWarning, match="memory_budget is"):
        operator = ParameterOperator(net(), CROSS, Shuffled(), memory_budget=600)
    operator.gradient()
    assert len(seen) > 1


@pytest.mark.parametrize("sizes", [(2, 3, 4), (1, 4, 4), (2,), (1,)])
@pytest.mark.parametrize("check", [True, False])
def test_a_loss_of_one_value_for_each_example_in_small_batches(sizes, check):
    each = nn.CrossEntropyLoss(reduction="none")
    count = sum(sizes)
    parts = zip(X[:count].split(sizes), Y[:count].split(sizes), strict=True)
    module = net()
    if sizes[0] == 1 < len(sizes) and not check:
        pytest.skip("whether one value is a scalar is compared with other batches")
    operator = ParameterOperator(module, each, list(parts), check=check)
    expected = parameter_matrix("hessian", module, CROSS, X[:count], Y[:count])
    assert relative(operator.dense(), expected) < 1e-12


def test_all_that_a_module_that_returns_its_loss_is_given_is_its_input():
    def masked(m, x, mask=None):
        each = m.net(x).square()
        return each.mean() if mask is None else (each * mask).mean()

    module, mask = Own(masked, net=net()), torch.rand(len(X), 1, generator=seeded()).double()
    expected = parameter_matrix("hessian", module, lambda value, y: value, (X, mask), None)
    for given in [(X, mask), [[X, mask]], ((X, mask), None), ((X,), {"mask": mask})]:
        assert relative(ParameterOperator(module, None, given).dense(), expected) < 1e-12
    with refusal(r"\[\(x, None\), \(y, None\)\] for two batches"):
        ParameterOperator(module, None, [X, mask])


def graphs(sizes):
    """Rings of these numbers of nodes, and two numbers of each."""
    nodes = sum(sizes)
    which = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    edges = torch.stack([torch.arange(nodes), torch.arange(nodes).roll(1)])
    x = torch.randn(nodes, 3, generator=seeded(nodes)).double()
    return (x, edges, which), torch.randn(len(sizes), 3, generator=seeded(nodes)).double()


def test_batches_that_cannot_be_cut_and_have_other_numbers_of_rows_ask_for_weights():
    def pooled(m, x, edges, which):
        h = m.net(x.index_add(0, edges[0], x[edges[1]]))
        return h.new_zeros(int(which.max()) + 1, 3).index_add(0, which, h)

    module, loss, batches = (
        Own(pooled, net=net()),
        nn.MSELoss(),
        [graphs([2, 3, 4]), graphs([9, 8])],
    )
    with refusal("cannot be cut and differ in rows of input and target"):
        ParameterOperator(module, loss, batches)
    operator = ParameterOperator(module, loss, batches, weights=lambda given, y: len(y))
    assert relative(operator.dense(), weighted(module, loss, batches, [3, 2])) < 1e-12
    equal = [graphs([2, 4]), graphs([3, 3])]
    operator = ParameterOperator(module, loss, equal)
    assert relative(operator.dense(), weighted(module, loss, equal, [1, 1])) < 1e-12


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


WRITERS = {
    "initialises": lambda: nn.Sequential(Initialised(), net()),
    "clips": lambda: Own(clipped, layer=nn.Linear(3, 3).double()),
}


@pytest.mark.parametrize("check", [True, "report", False])
@pytest.mark.parametrize("name", WRITERS)
def test_a_module_that_writes_to_its_parameters_is_refused_and_left_as_it_was(name, check):
    module = WRITERS[name]()
    before, flags = copy.deepcopy(module.state_dict()), [dict(vars(m)) for m in module.modules()]
    with refusal("writes to its parameters"):
        ParameterOperator(module, CROSS, (X, Y), check=check)
    assert all(torch.equal(before[k], v) for k, v in module.state_dict().items())
    assert flags == [dict(vars(m)) for m in module.modules()]
    module(X)
    if name == "initialises":
        found = ParameterOperator(module, CROSS, (X, Y)).dense()
        assert relative(found, parameter_matrix("hessian", module, CROSS, X, Y)) < 1e-12


@pytest.mark.parametrize("registered", [True, False])
def test_a_buffer_that_the_first_call_fills_is_empty_afterwards(registered):
    def centred(m, x):
        if m._buffers.get("centre") is None:
            m.register_buffer("centre", x.mean(0))
        return m.layer(torch.tanh(x - m.centre))

    module = Own(centred, layer=nn.Linear(3, 3).double())
    if registered:
        module.register_buffer("centre", None)
    found = ParameterOperator(module, CROSS, (X, Y)).dense()
    assert dict(module.named_buffers()) == {}
    plain = Own(lambda m, x: m.layer(torch.tanh(x - X.mean(0))), layer=module.layer)
    assert relative(found, parameter_matrix("hessian", plain, CROSS, X, Y)) < 1e-12


@pytest.mark.parametrize("seed", [0, 3])
def test_a_fixed_draw_of_dropout_is_one_function(seed):
    module = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Tanh(), nn.Linear(8, 3)).double()
    operator = ParameterOperator(module, CROSS, (X, Y), seed=seed)
    torch.manual_seed(seed)
    kept = nn.functional.dropout(torch.ones(len(X), 8).double(), 0.5)
    plain = Own(lambda m, x: m.last(torch.tanh(m.first(x) * kept)), first=module[0], last=module[3])
    assert relative(operator.dense(), parameter_matrix("hessian", plain, CROSS, X, Y)) < 1e-12
    assert verify(operator).ok


def test_groups_by_the_second_name_of_a_tied_parameter():
    def language(m, tokens):
        return m.decoder(torch.tanh(m.embedding(tokens)))

    module = Own(language, embedding=nn.Embedding(5, 3), decoder=nn.Linear(3, 5)).double()
    module.decoder.weight = module.embedding.weight
    tokens = torch.arange(5)

    def members(groups):
        operator = ParameterOperator(module, CROSS, (tokens, tokens), groups)
        return operator.layout.members

    assert members(["decoder"]) == {"decoder": ("embedding.weight", "decoder.bias")}
    assert members({"e": "embedding", "d": "decoder"}) == {
        "e": ("embedding.weight",),
        "d": ("decoder.bias",),
    }
    with refusal("two groups"):
        members({"e": "embedding", "d": "decoder.weight"})


def test_complex_parameters_at_an_odd_place_of_the_vector():
    def spectrum(m, x):
        return m.last((x.to(m.w.dtype) @ m.w).abs().square()) * m.scale

    w = torch.randn(3, 3, dtype=torch.complex128, generator=seeded())
    scale = nn.Parameter(torch.ones(1).double())
    module = Own(spectrum, last=nn.Linear(3, 3).double(), scale=scale, w=nn.Parameter(w))
    operator = ParameterOperator(module, CROSS, (X, Y), {"a": "scale", "b": "w"})
    leaves = scale.detach().clone().requires_grad_(), torch.view_as_real(w).clone().requires_grad_()
    plain = (X.to(w.dtype) @ torch.view_as_complex(leaves[1])).abs().square()
    value = CROSS(module.last(plain) * leaves[0], Y)
    v = torch.randn(19, generator=seeded(2)).double()
    images = twice(value, leaves, [v[:1], v[1:].view(3, 3, 2)])
    assert relative(operator @ v, torch.cat([image.flatten() for image in images])) < 1e-12


@pytest.mark.parametrize("kind", ["script", "trace"])
def test_scripted_modules_are_measured_and_keep_their_parameters(kind):
    module = net()
    scripted = torch.jit.script(module) if kind == "script" else torch.jit.trace(module, X)
    dense = ParameterOperator(scripted, CROSS, (X, Y)).dense()
    assert relative(dense, parameter_matrix("hessian", module, CROSS, X, Y)) < 1e-12
    for one, other in zip(scripted.parameters(), module.parameters(), strict=True):
        assert one is other or one.data_ptr() == other.data_ptr()


def test_modules_whose_buffers_are_not_there_yet():
    with refusal("no weights yet"):
        module = nn.Sequential(nn.Linear(3, 3), nn.LazyBatchNorm1d(affine=False)).double()
        ParameterOperator(module, CROSS, (X, Y))


# ------------------------------------------------------------------ the Fisher matrix


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("kind", ["weights of classes", "weight of positives"])
def test_weights_that_the_first_examples_do_not_show(kind, several):
    weight = torch.tensor([5.0, 1.0, 1.0]).double()
    y = torch.tensor([1, 1, 1, 1, 1, 0, 1, 1, 0])
    loss, target = nn.CrossEntropyLoss(weight), y
    if kind == "weight of positives":
        loss = nn.BCEWithLogitsLoss(pos_weight=weight)
        target = (y == 0).double().unsqueeze(1) * torch.tensor([1.0, 0, 0]).double()
    data = [(X[:5], target[:5]), (X[5:], target[5:])] if several else (X, target)
    with refusal("logarithm of a density"):
        ParameterOperator(net(), loss, data, part="fisher", weights=lambda x, y: len(x))


def test_a_batch_that_is_fitted_does_not_speak_against_a_likelihood():
    x, sharp = X.float(), nn.Sequential(net().float(), Own(lambda m, f: f * 30))
    y = sharp(x).argmax(1)
    y[0] = (y[0] + 1) % 3
    slopes = torch.autograd.functional.jacobian(lambda f: CROSS(f, y[6:]), sharp(x[6:]))
    assert 0 < float(slopes.abs().max()) < 1e-4
    operator = ParameterOperator(sharp, CROSS, [(x[:6], y[:6]), (x[6:], y[6:])], part="fisher")
    assert operator.likelihood == "categorical"


# ------------------------------------------------------------------ vectors and results


def test_vectors_of_any_layout_and_none_of_complex_numbers():
    module = net()
    operator = ParameterOperator(module, CROSS, (X, Y))
    dense = parameter_matrix("hessian", module, CROSS, X, Y)
    n = len(dense)
    wide = torch.randn(2 * n, 80, generator=seeded()).double()
    for v in (wide[::2], wide[::2, ::3], wide[:n, 0], wide[::2, 1].expand(3, -1).mT):
        assert relative(operator @ v, dense @ v) < 1e-12
    assert relative(operator @ torch.ones(n, dtype=torch.int64), dense.sum(1)) < 1e-12
    for v in (wide[:n, 0] * 1j, wide[:n] * 1j):
        with refusal("expected a real tensor"):
            operator @ v
    view, z = as_linear_operator(operator), wide[:n, 0].numpy() + 1j * wide[:n, 1].numpy()
    assert np.abs(view @ z - dense.numpy() @ z).max() < 1e-12


@pytest.mark.parametrize("probes", [False, True])
def test_a_stop_gives_the_metrics_so_far(probes):
    torch.manual_seed(0)
    width = 300 if probes else 4
    module = nn.Sequential(nn.Linear(3, width), nn.Tanh(), nn.Linear(width, 3)).double()
    operator = LayerOperator(module, CROSS, (X, Y))
    apply, calls = operator.apply, []

    def stopping(directions):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return apply(directions)

    operator.apply = stopping
    if probes:
        operator.settings = operator.settings._replace(memory_budget=1)
    with pytest.raises(KeyboardInterrupt) as stop:
        inter_layer_metrics(operator)
    found = stop.value.partial
    assert set(found) == {("0", "0"), ("0", "2"), ("2", "2")}
    assert all(pair.D.reason for pair in found.values())


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
    operator = ParameterOperator(module, CROSS, BATCHES)
    module.calls = call
    with pytest.raises(KeyboardInterrupt):
        operator.dense()
    sizes = [len(x) for x, _ in BATCHES]
    assert relative(operator.dense(), weighted(module, CROSS, BATCHES, sizes)) < 1e-12


def test_autocast_is_off_in_products():
    module = net().float()
    x = X.float()
    ways = [lambda o: o @ torch.ones(31), lambda o: o.gradient(), lambda o: trace_estimate(o).value]
    for way in ways:
        with torch.autocast("cpu"):
            half = module(x)
        operator = ParameterOperator(module, CROSS, (x, Y))
        with torch.autocast("cpu"):
            found = way(operator)
            assert torch.equal(module(x), half)
        expected = way(ParameterOperator(module, CROSS, (x, Y)))
        assert torch.equal(torch.as_tensor(found), torch.as_tensor(expected))


def test_a_product_can_be_differentiated_by_its_vector():
    operator = ParameterOperator(net(), CROSS, (X, Y))
    v = torch.randn(31, generator=seeded(1)).double().requires_grad_()
    (slope,) = torch.autograd.grad(v @ (operator @ v), v)
    assert relative(slope, 2 * (operator @ v.detach())) < 1e-12
    columns = torch.stack([v, 2 * v], 1)
    (slope,) = torch.autograd.grad((operator @ columns)[:, 1].sum(), v)
    assert relative(slope, 2 * operator.dense().sum(0)) < 1e-12
    with torch.no_grad():
        assert not (operator @ v).requires_grad


def test_operators_are_not_pickled():
    operator = ParameterOperator(net(), CROSS, (X, Y))
    for take in (pickle.dumps, copy.deepcopy):
        with refusal("build it again", TypeError):
            take(operator)
    assert torch.equal(copy.copy(operator).dense(), operator.dense())


def test_tensors_that_numpy_has_no_type_for(tmp_path):
    path = tmp_path / "result.npz"
    z = torch.tensor([1 + 2j]).conj()
    save([z, z.imag], path)
    assert torch.equal(load(path)[0], z) and torch.equal(load(path)[1], z.imag)
    with refusal("that numpy has a type for"):
        save(torch.eye(2).to_sparse(), path)


# ------------------------------------------------------------------ layers


T = 4
FLAT = {
    "examples, tokens": lambda h: h.flatten(0, 1),
    "tokens, examples": lambda h: h.transpose(0, 1).flatten(0, 1),
    "lines, examples, columns": lambda h: h.unflatten(1, (2, 2)).transpose(0, 1).flatten(0, 2),
}


def tokens(order, inside=nn.Identity):
    """Applies its layer to the tokens of all examples in one dimension, and weighs places."""
    places = torch.arange(len(X) * T).view(len(X), T, 1)

    def forward(m, x):
        flat = FLAT[order](x)
        back = FLAT[order](places[: len(x)]).flatten().argsort()
        h = m.inside(m.layer(torch.tanh(flat)))[back].view(x.shape)
        return (h * torch.arange(1.0, T + 1).double().view(1, T, 1)).sin().sum(1)

    torch.manual_seed(0)
    return Own(forward, layer=nn.Linear(3, 3), inside=inside()).double()


def of_tokens(module, x, y, order, counts):
    """The dense block of the layer, e (T, d) in the order of FLAT without examples."""

    def value(e):
        shift = torch.zeros(())

        def hook(_, __, out):
            nonlocal shift
            rows = FLAT[order](torch.arange(T).view(1, T, 1).expand(len(out) // T, T, 1)).flatten()
            first = FLAT[order](torch.arange(T).view(1, T, 1)).flatten()
            place = torch.empty(T, dtype=torch.int64).scatter_(0, first, torch.arange(T))
            return out + e.view(T, 3)[place[rows]]

        handle = module.layer.register_forward_hook(hook)
        try:
            parts = zip(x.split(counts), y.split(counts), strict=True)
            terms = [CROSS(module(a), b) * len(b) / len(y) for a, b in parts]
        finally:
            handle.remove()
        return torch.stack(terms).sum()

    return torch.autograd.functional.hessian(value, torch.zeros(3 * T).double())


@pytest.mark.filterwarnings("ignore:memory_budget is")
@pytest.mark.parametrize("counts, budget", [([9], 1 << 30), ([1], 1 << 30), ([4, 5], 5000)])
@pytest.mark.parametrize("order", FLAT)
def test_the_tokens_of_an_example_are_found_wherever_they_lie(order, counts, budget):
    module, x = tokens(order), torch.randn(9, T, 3, generator=seeded()).double()[: sum(counts)]
    y = Y[: len(x)]
    batches = list(zip(x.split(counts), y.split(counts), strict=True))
    operator = LayerOperator(module, CROSS, batches, ["layer"], memory_budget=budget)
    assert operator.sizes == {"layer": 3 * T}
    assert relative(operator.dense(), of_tokens(module, x, y, order, counts)) < 1e-12


@pytest.mark.parametrize("order", FLAT)
def test_tokens_in_one_dimension_under_statistics_of_the_batch(order):
    module = tokens(order, lambda: nn.BatchNorm1d(3)).train()
    x = torch.randn(9, T, 3, generator=seeded()).double()
    operator = LayerOperator(module, CROSS, (x, Y), ["layer"])
    assert relative(operator.dense(), of_tokens(module, x, Y, order, [9])) < 1e-10


def packed(m, x, lengths):
    inside = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    inside = inside._replace(data=m.layer(torch.tanh(inside.data)))
    found, _ = pad_packed_sequence(inside, batch_first=True)
    return (found * torch.arange(1.0, found.shape[1] + 1).view(1, -1, 1)).sin().sum(1)


@pytest.mark.parametrize("form", [list, torch.tensor])
@pytest.mark.parametrize("lengths, size", [([3, 3, 3], 9), ([4, 2, 3], 3), ([3, 2, 3], 3)])
def test_packed_sequences_share_a_perturbation_by_time_where_all_have_one_length(
    lengths, size, form
):
    torch.manual_seed(0)
    module = Own(packed, layer=nn.Linear(3, 3)).double()
    x = torch.randn(3, max(lengths), 3, generator=seeded()).double()
    batch = (x, form(lengths)), Y[:3]
    operator = LayerOperator(module, CROSS, batch, ["layer"])
    assert operator.sizes == {"layer": size}

    def value(e):
        rows = e.view(-1, 1, 3).expand(-1, 3, 3).flatten(0, 1) if size == 9 else e
        handle = module.layer.register_forward_hook(lambda _, __, out: out + rows)
        try:
            return CROSS(module(*batch[0]), batch[1])
        finally:
            handle.remove()

    expected = torch.autograd.functional.hessian(value, torch.zeros(size).double())
    assert relative(operator.dense(), expected) < 1e-12


@pytest.mark.parametrize("lengths", [(1, 4), (4, 1), (4, 3)])
def test_batches_of_other_lengths_have_no_common_perturbation(lengths):
    torch.manual_seed(0)
    module = Own(lambda m, x: m.layer(torch.tanh(x)).sin().mean(1), layer=nn.Linear(3, 3)).double()
    batches = [(torch.randn(4, t, 3).double(), Y[:4]) for t in lengths]
    with refusal("expected batches of one shape except for their numbers of examples"):
        LayerOperator(module, CROSS, batches, ["layer"])


def recurrent(last):
    torch.manual_seed(0)
    parts = {"r": nn.LSTM(3, 4), "h": nn.Linear(4, 2)}
    return Own(lambda m, x: m.h(m.r(x)[0][-1] if last else m.r(x)[0]), **parts).double()


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("time, count", [(5, 6), (6, 6), (1, 6), (5, 1)])
def test_examples_along_the_other_dimension_are_seen_by_the_losses_of_parts(time, count, last):
    module = recurrent(last)
    x = torch.randn(time, count, 3, generator=seeded()).double()
    y = torch.randn(*x.shape[last:2], 2, generator=seeded(1)).double()
    with refusal("along dimension 1 of the input, .* give batch_dim=1"):
        LayerOperator(module, nn.MSELoss(), (x, y), ["h"])
    with refusal("give batch_dim=1"):
        LayerOperator(module, lambda f, y: (f - y).square(), (x, y), ["h"])
    if (time, count) == (5, 6):
        with refusal("give batch_dim=1"):
            ParameterOperator(module, nn.MSELoss(), [(x, y), (x, y)])
    sizes = LayerOperator(module, nn.MSELoss(), (x, y), ["h"], batch_dim=1).sizes
    assert sizes == {"h": 2 if last else 2 * time}


def of_means(f, y):
    """The sum over the examples of their means over time."""
    return (f - y).square().sum(0).mean()


@pytest.mark.parametrize("loss", [nn.MSELoss(), of_means])
@pytest.mark.parametrize("inside", [nn.Identity(), nn.BatchNorm1d(3)])
def test_examples_along_the_first_dimension_are_left_there(inside, loss):
    """Each time alone, or statistics of the batch: no other dimension is the better one."""
    module = nn.Sequential(nn.Linear(3, 4), inside, nn.Tanh(), nn.Linear(4, 2)).double().train()
    x = torch.randn(6, 3, 3, generator=seeded()).double()
    operator = LayerOperator(module, loss, (x, x[..., :2].cos()), ["3"])
    assert operator.sizes == {"3": 6}


def test_a_layer_that_returns_a_nested_tensor_is_refused():
    def mean(m, nested):
        return m.last(torch.stack([h.mean(0) for h in m.first(nested).sin().unbind()]))

    rows = [torch.randn(n, 3, generator=seeded(n)).double() for n in (2, 4)]
    given = torch.nested.nested_tensor(rows, layout=torch.jagged)
    module = Own(mean, first=nn.Linear(3, 3), last=nn.Linear(3, 3)).double()
    with refusal("nested tensor, .* pad the sequences"):
        LayerOperator(module, CROSS, (given, Y[:2]), ["first"])
