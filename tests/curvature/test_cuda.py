"""The engine on a GPU: the numbers of the processor, nothing of the caller's disturbed, memory
within the budget.

Skipped where torch finds no CUDA device. Random vectors are drawn on the processor, so estimates
agree as products do.
"""

import contextlib
import copy
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import runner.curvature as rc
from runner.curvature import LayerOperator, ParameterOperator
from runner.curvature.graphs import block_metrics as metrics
from runner.store.checkpoints import DiskCheckpoints
from tests.curvature.cases import GRAPHS, Own, make, node_operator, relative_error
from tests.curvature.module_cases import Encoder, LanguageModel, ResNet
from tests.curvature.operators import test_double_backward as cases
from tests.draws import normal, seeded, tanh_net
from tests.errors import refusal

if not torch.cuda.is_available():
    pytest.skip("torch finds no CUDA device", allow_module_level=True)
CUDA = "cuda"
LOSS = nn.CrossEntropyLoss()
MIB = 1 << 20


def convnet():
    torch.manual_seed(0)
    first, second = nn.Conv2d(3, 16, 3, 1, 1), nn.Conv2d(16, 32, 3, 2, 1)
    layers = [first, nn.BatchNorm2d(16), nn.SiLU(), second, nn.SiLU()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(2048, 10)).eval()


def images(count=32, device=CUDA, dtype=torch.float32):
    x = torch.randn(count, 3, 16, 16, generator=seeded(1))
    return x.to(device, dtype), (torch.arange(count) % 10).to(device)


def built(device=CUDA, part="hessian", dtype=torch.float64):
    data = images(device=device, dtype=dtype)
    return ParameterOperator(convnet().to(device, dtype), LOSS, data, part=part)


def far(one, two):
    one, two = one.detach().cpu().double(), two.detach().cpu().double()
    return float((one - two).norm() / two.norm())


@pytest.mark.parametrize("module, output, loss, given, part", cases.CASES)
def test_products_are_those_of_double_backward(module, output, loss, given, part, monkeypatch):
    monkeypatch.setattr(cases, "DEVICE", CUDA)
    monkeypatch.setattr(cases, "WEIGHTS", cases.WEIGHTS.to(CUDA))
    cases.test_products_are_right_or_refused(module, output, loss, given, part, monkeypatch)


@pytest.mark.parametrize("part", ["hessian", "gauss_newton"])
@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-10), (torch.float32, 1e-5)])
def test_products_agree_with_the_processor(part, dtype, tolerance):
    truth, found = built("cpu", part), built(CUDA, part, dtype)
    v = normal(truth.shape[0], 3, generator=seeded())
    assert far(found @ v.to(CUDA, dtype), truth @ v) < tolerance
    assert far(found.gradient(), truth.gradient()) < tolerance


ESTIMATES = {
    "trace": lambda o: rc.trace_estimate(o).value,
    "upper bound": lambda o: rc.upper_bound_estimate(o).value,
    "eigenvalues": lambda o: rc.top_eigenpairs(o, 3).values,
    "density": lambda o: rc.spectral_density(o).nodes,
    "phi": lambda o: rc.inter_layer_metrics(o).phi.value,
}


@pytest.mark.parametrize("name", ESTIMATES)
def test_estimates_of_parameters_agree_with_the_processor(name):
    here, there = (torch.as_tensor(ESTIMATES[name](built(d))) for d in ("cpu", CUDA))
    assert torch.allclose(there.cpu(), here.cpu(), rtol=1e-4, atol=1e-12)


LIKE_MODULES = [name for name in GRAPHS if name not in ("skip", "attention", "convolution")]


def assert_metrics(there, here, tolerances):
    """The same pairs, with the same values of these metrics."""
    for key, m in here.items():
        for name, tolerance in tolerances.items():
            found, expected = getattr(there[key], name), getattr(m, name)
            assert found.value == pytest.approx(expected.value, rel=tolerance)


@pytest.mark.parametrize("name", LIKE_MODULES)
def test_exact_blocks_and_factors_agree_with_the_processor(name):
    case = make(name)
    given = copy.deepcopy(case.dag), case.x.to(CUDA), case.y.to(CUDA)
    for node in given[0].nodes.values():
        if isinstance(node.fn, nn.Module):
            node.fn.to(CUDA)
    here, there = rc.split_blocks(*case.given), rc.split_blocks(*given)
    for part in ("total", "gauss_newton", "tensor"):
        found = {key: block.cpu() for key, block in getattr(there, part).items()}
        assert relative_error(found, dict(getattr(here, part))) < 1e-10
    here, there = rc.graph_metrics(*case.given), rc.graph_metrics(*given)
    assert_metrics(there, here, {"R": 1e-8, "D": 1e-6})


def loss_of_logits(f, t):
    return F.cross_entropy(f["logits"] if isinstance(f, dict) else f, t)


@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-8), (torch.float32, 1e-4)])
@pytest.mark.parametrize("kind, shape", [(ResNet, (3, 1, 8, 8)), (Encoder, (3, 4, 2))])
def test_layers_of_modules_agree_with_the_processor(kind, shape, dtype, tolerance):
    module, x, y = kind().double().eval(), normal(*shape), torch.arange(3)
    here = rc.inter_layer_metrics(LayerOperator(module, loss_of_logits, (x, y)))
    data = x.to(CUDA, dtype), y.to(CUDA)
    there = rc.inter_layer_metrics(LayerOperator(module.to(CUDA, dtype), loss_of_logits, data))
    assert_metrics(there, here, {"R": tolerance})


def loss_of_tokens(f, t):
    return F.cross_entropy(f.flatten(0, 1), t.flatten())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_certificates_say_ok(dtype):
    tokens = torch.randint(5, (3, 4), device=CUDA)
    data = tokens[:, :-1], tokens[:, 1:]
    language = ParameterOperator(LanguageModel().to(CUDA, dtype), loss_of_tokens, data)
    parts = [built(CUDA, part, dtype) for part in ("hessian", "gauss_newton")]
    for operator in (language, *parts):
        found = rc.verify(operator)
        assert found.ok, str(found)


def test_draws_of_dropout_are_refused_or_leave_the_generator():
    layers = [nn.Flatten(), nn.Linear(768, 8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, 10)]
    module = nn.Sequential(*layers).to(CUDA)
    before = torch.cuda.get_rng_state()
    with refusal("draws at random"):
        ParameterOperator(module.train(), LOSS, images())
    operator = ParameterOperator(module.eval(), LOSS, images())
    rc.trace_estimate(operator)
    rc.verify(operator)
    assert torch.equal(torch.cuda.get_rng_state(), before)


@pytest.mark.parametrize("part", ["hessian", "gauss_newton"])
def test_a_product_does_not_wait_for_the_gpu(part):
    operator = built(CUDA, part, torch.float32)
    v = torch.randn(operator.shape[0]).to(CUDA)
    operator @ v
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            operator @ v
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert not [w for w in said if "synchroniz" in str(w.message)]


@pytest.mark.parametrize("part", ["hessian", "gauss_newton"])
def test_memory_stays_within_the_budget(part):
    budget, data = 64 * MIB, images(512)
    settings = {"part": part, "memory_budget": budget}
    operator = ParameterOperator(convnet().to(CUDA), LOSS, data, **settings)
    v = torch.randn(operator.shape[0], device=CUDA)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    operator @ v
    assert 0.2 * budget < torch.cuda.max_memory_allocated() - before <= 1.2 * budget


def scattered():
    """Sums over the edges of a graph with atomic additions, whose order differs from call to
    call."""

    def run(m, x, source, target):
        h = torch.tanh(m.first(x))
        return m.last(torch.zeros_like(h).index_add(0, target, h[source]))

    return Own(run, first=nn.Linear(8, 16), last=nn.Linear(16, 3))


def graph_data(device=CUDA):
    edges = torch.randint(40, (2, 4000), generator=seeded(2)).to(device)
    x = torch.randn(40, 8, generator=seeded(1)).to(device)
    return (x, *edges), (torch.arange(40) % 3).to(device)


def test_sums_in_another_order_are_not_taken_for_random_draws():
    module, ((x, *edges), y) = scattered(), graph_data("cpu")
    truth = ParameterOperator(copy.deepcopy(module).double(), LOSS, ((x.double(), *edges), y))
    found = ParameterOperator(module.to(CUDA), LOSS, graph_data())
    v = normal(truth.shape[0], generator=seeded())
    assert far(found @ v.to(CUDA, torch.float32), truth @ v) < 1e-4


def test_an_index_out_of_range_in_a_part_of_a_batch_does_not_end_the_process():
    """Edges that point to nodes of another part, and labels that count the examples of a batch."""
    module, ((x, *_), _) = scattered().to(CUDA), graph_data()
    with contextlib.suppress(ValueError):
        ParameterOperator(module, LOSS, graph_data(), part="gauss_newton", memory_budget=65536)
    with refusal("cannot be measured alone"):
        ParameterOperator(module, LOSS, [graph_data(), graph_data()])
    # scores of every first example with every second one: the label of a row is its number
    scores = Own(lambda m, x, z: m.a(x) @ m.b(z).mT, a=nn.Linear(8, 4), b=nn.Linear(8, 4))
    labels = torch.arange(40, device=CUDA)
    found = ParameterOperator(scores.to(CUDA), LOSS, [((x, x.flip(0)), labels)])
    assert rc.verify(found).ok
    assert float(torch.ones(3, device=CUDA).sum()) == 3


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_attention_in_half_precision(dtype):
    """Fast kernels of attention have no second derivative; the operator takes others."""
    layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
    module = nn.Sequential(layer, nn.Linear(64, 3)).eval()
    x, y = torch.randn(4, 16, 64), torch.arange(64).view(4, 16) % 3
    wide = copy.deepcopy(module).double()
    truth = ParameterOperator(wide, loss_of_tokens, (x.double(), y))
    data = x.to(CUDA, dtype), y.to(CUDA)
    found = ParameterOperator(module.to(CUDA, dtype), loss_of_tokens, data)
    v = normal(truth.shape[0], generator=seeded())
    assert far(found @ v.to(CUDA, dtype), truth @ v) < 0.1


@pytest.mark.parametrize("operator", [ParameterOperator, LayerOperator])
def test_networks_on_another_device_than_the_data_are_refused_in_one_line(operator):
    two = nn.Sequential(nn.Flatten(), nn.Linear(768, 4), nn.Linear(4, 10).to(CUDA))
    cases = (convnet().to(CUDA), "cpu"), (convnet(), CUDA), (two, "cpu")
    for module, device in cases:
        with refusal("cuda"):
            operator(module, LOSS, images(device=device))


def test_vectors_of_the_processor_are_taken():
    operator = built()
    ones = torch.ones(operator.shape[0], dtype=torch.float64)
    expected = operator @ ones.to(CUDA)
    assert far(operator @ ones, expected) < 1e-12
    assert far(torch.as_tensor(rc.as_linear_operator(operator) @ ones.numpy()), expected) < 1e-12


ESTIMATORS = [
    *(rc.trace_estimate, rc.upper_bound_estimate, rc.spectral_density),
    rc.inter_layer_metrics,
    lambda operator: rc.top_eigenpairs(operator, 2),
]
OF_GRAPHS = [
    *(rc.exact_blocks, rc.split_blocks, rc.gauss_newton_blocks, metrics.gauss_newton_factors),
    rc.inter_layer_metrics,
]


@pytest.fixture
def default_device():
    """Sets the default device, for one test."""
    before = torch.get_default_device()
    yield torch.set_default_device
    torch.set_default_device(before)


@pytest.mark.parametrize("device", ["cpu", CUDA])
def test_every_public_function_runs_there_and_with_that_default_device(device, default_device):
    net = tanh_net(6, 16, 3).to(CUDA)
    x, y = torch.randn(12, 6, device=CUDA), torch.arange(12, device=CUDA) % 3
    default_device(device)
    operator = ParameterOperator(net, LOSS, [(x[:5], y[:5]), (x[5:], y[5:])])
    for estimate in ESTIMATORS:
        estimate(operator)
    given = rc.Dag.from_sequential(net), x, y
    for measure in OF_GRAPHS:
        measure(*given)
    layers = node_operator(*given)
    layers.block("0", "2").dense()
    rc.top_eigenpairs(layers, 2)
    for target in (operator, LayerOperator(net, LOSS, (x, y)), layers):
        assert rc.verify(target).ok
    assert rc.verify(*given).ok


def test_a_training_goes_on_where_there_is_no_gpu(tmp_path):
    states = DiskCheckpoints(tmp_path)
    states.save("resume", {"network": torch.ones(3, device=CUDA)})
    assert states.load("resume")["network"].device.type == "cpu"
