"""trace_module against a dense float64 Hessian, whose perturbations forward hooks add to the module's own outputs."""

import copy
import doctest

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from runner.curvature import CurvatureOperator, exact_blocks, parameter_hessian, trace_module, verify
from runner.curvature.graph import from_module
from runner.curvature.graph.tracing import batches, points
from runner.curvature.graph.tracing.segment import Segment
from tests.curvature.cases import relative_error
from tests.curvature.module_cases import (
    MODULES,
    Checkpointed,
    Encoder,
    Recurrent,
    Reused,
    classes,
    hessian_by_hooks,
    make_module,
    ready,
    x,
)


def trace(case, **options):
    return trace_module(case.module, case.loss, case.batch, case.nodes, **case.options, **options)


@pytest.mark.parametrize("name", MODULES)
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


@pytest.mark.parametrize("name", MODULES)
def test_certificates_of_unmodified_modules(name):
    case = make_module(name)
    dag = trace(case)
    certificate = verify(dag, dag.x, dag.y)
    stopped = name == "unusual"  # a part without gradient: the blocks are autograd's, not those of the function
    assert certificate.ok is not stopped, str(certificate)


@pytest.mark.parametrize("module", [from_module, batches, points], ids=lambda m: m.__name__.rpartition(".")[2])
def test_docstrings(module):
    found = doctest.testmod(module, extraglobs={"torch": torch})
    assert found.failed == 0 and found.attempted > 0


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
    class Scaled(nn.Module):
        s = 1.0

        def __init__(self):
            super().__init__()
            self.layer, self.head = nn.Linear(3, 4), nn.Linear(4, 2)

        def forward(self, t):
            return self.head(torch.tanh(self.layer(t) * self.s))

    module = ready(Scaled())
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
    class Branch(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate, self.layer, self.head = nn.Linear(3, 1), nn.Linear(3, 4), nn.Linear(4, 2)

        def forward(self, t):
            scale = 2.0 if SEEN[seen](self.gate(t).sum()) > 0 else -3.0
            return self.head(torch.tanh(scale * self.layer(t)))

    module = ready(Branch())
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
    known = {k: v for k, v in module.named_parameters()}
    full = [n if n in known else f"head.{n}" for n in names]
    full = [n if n in known else f"body.{n.removeprefix('body.')}" for n in full]
    sizes = [known[n].numel() for n in full]

    def total(flat):
        given_parameters = {n: p.view(known[n].shape) for n, p in zip(full, flat.split(sizes), strict=True)}
        return loss(torch.func.functional_call(module, given_parameters, (given,)), target)

    flat = torch.cat([known[n].detach().flatten() for n in full])
    if hasattr(module, "reentrant"):
        module.reentrant = None
    expected = torch.autograd.functional.hessian(total, flat)
    assert sum(sizes) == sum(p.numel() for p in module.parameters())
    assert torch.allclose(found.matrix, expected, rtol=1e-9, atol=1e-12)
