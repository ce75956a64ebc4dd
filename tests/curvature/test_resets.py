"""Modules that switch something on themselves and put it back at their end, wrappers with hooks, other batches."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import runner.curvature as rc
from runner.curvature.graph.dag import Node
from runner.curvature.graph.from_module import _agrees, trace_module
from runner.curvature.parameters.operator import ParameterOperator
from tests.curvature.cases import Own, seeded

X, Y = torch.randn(4, 3, generator=seeded(1)).double(), torch.tensor([0, 1, 0, 1])


class Scaled(nn.Module):
    """tanh(scale t), whose scale the network changes between two calls."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = 1.0

    def forward(self, t):
        return torch.tanh(self.scale * t)


class Switching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.act, self.b, self.h = (
            nn.Linear(3, 4),
            Scaled(),
            nn.Linear(4, 4),
            nn.Linear(4, 2),
        )

    def forward(self, t, e=0.0):
        u = self.act(self.a(t) + e)
        self.act.scale = 3.0
        v = self.act(self.b(u))
        self.act.scale = 1.0
        return self.h(v)


class Cyclic(nn.Module):
    """A layer that counts its calls, and starts again after the third."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.l, self.h, self.i = nn.Linear(3, 4), nn.Linear(4, 4), nn.Linear(4, 2), 0
        self.f = Own(lambda m, u: self.layer(u))

    def layer(self, u):
        found = torch.tanh(self.l(u) * (0.5, 1.0, 3.0)[self.i])
        self.i = (self.i + 1) % 3
        return found

    def forward(self, t, e=0.0):
        u = self.a(t) + e
        for _ in range(3):
            u = self.f(u)
        return self.h(u)


@pytest.mark.parametrize("kind", [Switching, Cyclic])
def test_what_a_module_puts_back_at_its_end_is_put_back_where_a_replay_stops(kind):
    torch.manual_seed(0)
    net = kind().double()
    size = net.a.out_features
    expected = torch.autograd.functional.hessian(
        lambda e: F.cross_entropy(net(X, e), Y), torch.zeros(size).double()
    )
    before = [dict(vars(m)) for m in net.modules()]
    dag = trace_module(net, nn.CrossEntropyLoss(), (X, Y))
    for _ in range(2):
        torch.testing.assert_close(
            rc.exact_blocks(dag, dag.x, dag.y)["a", "a"], expected, rtol=1e-10, atol=1e-14
        )
    found = rc.inter_layer_metrics(dag, dag.x, dag.y)["a", "a"]
    assert found.R.value == pytest.approx(float(expected.norm()), rel=1e-10)
    assert rc.verify(dag, dag.x, dag.y, generator=seeded()).ok
    assert [dict(vars(m)) for m in net.modules()] == before


def test_hooks_on_a_wrapper_are_refused():
    compiled = torch.compile(nn.Linear(3, 2), backend="eager")
    compiled.register_forward_hook(lambda module, given, out: out * 10)
    for build in (
        lambda: trace_module(compiled, nn.CrossEntropyLoss(), (X.float(), Y)),
        lambda: ParameterOperator(compiled, nn.CrossEntropyLoss(), (X.float(), Y)),
    ):
        with pytest.raises(ValueError, match="has hooks: put them on the module"):
            build()


def test_another_batch_may_differ_in_its_examples_alone():
    torch.manual_seed(0)
    net = Own(
        lambda m, t, mask, scale=1.0: m.h(torch.tanh(m.a(t) * mask) * scale),
        a=nn.Linear(3, 4),
        h=nn.Linear(4, 2),
    )
    net.double()
    mask = torch.rand(4, dtype=torch.float64)
    dag = trace_module(
        net, nn.CrossEntropyLoss(), ({"t": X, "mask": mask, "scale": 0.5}, Y), shared="mask"
    )
    assert torch.equal(dag.pack({"t": 2 * X, "mask": mask, "scale": 0.5}), 2 * X)
    for other in ({"mask": mask + 1, "scale": 0.5}, {"mask": mask, "scale": 1.0}):
        with pytest.raises(
            ValueError, match="differs from the traced one in more than its examples"
        ):
            dag.pack({"t": X, **other})
    several = Own(
        lambda m, t, u: m.h(torch.tanh(m.a(t)) + u.sum(1, keepdim=True)),
        a=nn.Linear(3, 4),
        h=nn.Linear(4, 2),
    )
    dag = trace_module(several.double(), nn.CrossEntropyLoss(), ((X, X[:, :2]), Y))
    with pytest.raises(ValueError, match="in more than its examples"):
        dag.pack((X, X))


def test_layers_of_several_types_are_refused_by_what_is_exact():
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).bfloat16()
    upcast = Own(lambda m, t: m.net(t).float(), net=net)
    dag = trace_module(upcast, nn.CrossEntropyLoss(), (X.bfloat16(), Y), ["net.0", "net.2"])
    for measure in (rc.exact_blocks, rc.split_blocks):
        with pytest.raises(
            ValueError, match=r"nodes have several types \(torch.bfloat16, torch.float32\)"
        ):
            measure(dag, dag.x, dag.y)


def test_complex_weights_are_certified():
    torch.manual_seed(0)
    net = Own(
        lambda m, t: m.h(torch.fft.irfft(torch.fft.rfft(torch.tanh(m.a(t))) * m.weight, n=4)),
        a=nn.Linear(3, 4), h=nn.Linear(4, 2), weight=nn.Parameter(torch.randn(3, dtype=torch.complex64)),
    )  # fmt: skip
    dag = trace_module(net, nn.CrossEntropyLoss(), (X.float(), Y))
    assert rc.verify(dag, dag.x, dag.y, generator=seeded()).ok
    assert dag.to(torch.float64).replay.root.weight.dtype == torch.complex128


def test_the_loss_of_sequences_along_another_dimension_gets_contiguous_tensors():
    torch.manual_seed(0)
    net = Own(
        lambda m, t: m.h(torch.tanh(m.e(t))), e=nn.Embedding(7, 3), h=nn.Linear(3, 7)
    ).double()
    tokens, labels = torch.randint(7, (4, 3)), torch.randint(7, (4, 3))
    loss = lambda o, y: F.cross_entropy(o.view(-1, 7), y.view(-1))  # noqa: E731
    dag = trace_module(net, loss, (tokens, labels), batch_dim=1)
    other = trace_module(net, loss, (tokens.mT.contiguous(), labels.mT.contiguous()))
    one, two = (rc.exact_blocks(d, d.x, d.y)["h", "h"] for d in (dag, other))
    assert one.norm() == pytest.approx(float(two.norm()))


class Kept(nn.Module):
    """The network of `Switching` with its scale in a container, a tensor or a buffer, or with a harmless count."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.calls = kind, 0
        self.a, self.b, self.h = nn.Linear(3, 4), nn.Linear(4, 4), nn.Linear(4, 2)
        self.scale = {"dict": {"s": 1.0}, "list": [1.0], "tensor": torch.tensor(1.0).double()}.get(
            kind, 1.0
        )
        self.register_buffer("level", torch.tensor(1.0).double())

    def put(self, value):
        if self.kind == "dict":
            self.scale["s"] = value
        elif self.kind == "list":
            self.scale[0] = value
        elif self.kind == "tensor":
            self.scale = torch.tensor(value).double()
        elif self.kind == "buffer":
            self.level = torch.tensor(value).double()
        self.calls += 1

    def get(self):
        return {
            "dict": lambda: self.scale["s"],
            "list": lambda: self.scale[0],
            "tensor": lambda: self.scale,
        }.get(self.kind, lambda: self.level)()

    def forward(self, t, e=0.0):
        u = torch.tanh(self.get() * (self.a(t) + e))
        self.put(3.0)
        v = torch.tanh(self.get() * self.b(u))
        self.put(1.0)
        return self.h(v)


@pytest.mark.parametrize("kind", ["dict", "list", "tensor", "buffer", "count"])
def test_wherever_it_is_kept(kind):
    torch.manual_seed(0)
    net = Kept(kind).double()
    expected = torch.autograd.functional.hessian(
        lambda e: F.cross_entropy(net(X, e), Y), torch.zeros(4).double()
    )
    dag = trace_module(net, nn.CrossEntropyLoss(), (X, Y))
    torch.testing.assert_close(
        rc.exact_blocks(dag, dag.x, dag.y)["a", "a"], expected, rtol=1e-10, atol=1e-14
    )
    assert dag.replay.resets == (kind != "count")


def test_a_module_that_casts_its_input_has_exact_blocks():
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    cast = Own(lambda m, t: m.net(t.float()), net=net)
    dag = trace_module(cast, nn.CrossEntropyLoss(), (X, Y), ["net.0", "net.2"])
    own = trace_module(net, nn.CrossEntropyLoss(), (X.float(), Y), ["0", "2"])
    one, two = (
        rc.exact_blocks(dag, dag.x, dag.y)["net.0", "net.2"],
        rc.exact_blocks(own, own.x, own.y)["0", "2"],
    )
    torch.testing.assert_close(one.float(), two, rtol=1e-4, atol=1e-6)


def test_numbers_that_are_not_a_number_and_missing_inputs():
    net = Own(
        lambda m, t, mask, fill=0.0: m.h(t.masked_fill(mask, 0.0)), h=nn.Linear(3, 2)
    ).double()
    mask = torch.zeros(4, 3, dtype=torch.bool)
    dag = trace_module(
        net, nn.CrossEntropyLoss(), ({"t": X, "mask": mask, "fill": float("nan")}, Y)
    )
    assert len(dag.pack({"t": X, "mask": mask, "fill": float("nan")})) == 4
    with pytest.raises(ValueError, match="in more than its examples"):
        dag.pack({"t": X, "mask": mask})


@pytest.mark.parametrize("loss", [nn.MSELoss(), nn.BCEWithLogitsLoss()])
def test_a_module_that_ends_in_squeeze_is_certified(loss):
    """It has no output for one example alone, so that the batch is compared only."""
    torch.manual_seed(0)
    net = Own(
        lambda m, t: m.h(torch.tanh(m.a(t))).squeeze(), a=nn.Linear(3, 4), h=nn.Linear(4, 1)
    ).double()
    dag = trace_module(net, loss, (X, Y.double()))
    assert rc.verify(dag, dag.x, dag.y, generator=seeded()).ok


def test_a_state_that_a_stopped_replay_leaves_may_make_the_next_one_fail():
    """A recurrent cell that forgets at its end what it keeps of its batch."""

    def forward(m, t):
        u = torch.tanh(m.a(t))
        if m.kept is not None:
            u = u + m.kept  # of another number of examples, this fails
        m.kept = u
        out = m.h(u)
        m.kept = None
        return out

    torch.manual_seed(0)
    net = Own(forward, a=nn.Linear(3, 4), h=nn.Linear(4, 2), kept=None).double()
    dag = trace_module(net, nn.CrossEntropyLoss(), (X, Y))
    plain = nn.Sequential(net.a, nn.Tanh(), net.h)
    other = trace_module(plain, nn.CrossEntropyLoss(), (X, Y))
    one, two = rc.exact_blocks(dag, dag.x, dag.y), rc.exact_blocks(other, other.x, other.y)
    torch.testing.assert_close(one["a", "h"], two["0", "2"], rtol=1e-10, atol=1e-14)
    assert net.kept is None


def test_replays_put_nothing_back_where_that_does_not_help():
    """It takes time; a graph that is wrong for another reason is made again with every node before as a parent."""
    net = Own(lambda m, t: m.h(torch.tanh(m.a(t))), a=nn.Linear(3, 4), h=nn.Linear(4, 2)).double()
    dag = trace_module(net, nn.CrossEntropyLoss(), (X, Y))
    assert _agrees(dag)
    dag.nodes["h"] = Node("h", ("a",), lambda t: 0 * t[:, :2])
    assert not _agrees(dag)
    assert not dag.replay.resets
