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
from runner.curvature.estimators import blocks as metrics
from runner.store.checkpoints import DiskCheckpoints
from tests.curvature.cases import GRAPHS, Own, make, relative_error
from tests.curvature.module_cases import Encoder, LanguageModel, ResNet
from tests.curvature.operators import test_double_backward as cases
from tests.draws import normal, seeded, tanh_net
from tests.errors import refusal

if not torch.cuda.is_available():
    pytest.skip("torch finds no CUDA device", allow_module_level=True)
CUDA = "cuda"
MIB = 1 << 20


def convnet():
    torch.manual_seed(0)
    layers = [
        nn.Conv2d(3, 16, 3, 1, 1),
        nn.BatchNorm2d(16),
        nn.SiLU(),
        nn.Conv2d(16, 32, 3, 2, 1),
        nn.SiLU(),
    ]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(2048, 10)).eval()


def images(count=32):
    return torch.randn(count, 3, 16, 16, generator=seeded(1)), torch.arange(count) % 10


def pair(part="hessian", dtype=torch.float64, **options):
    """The same operator on the processor and on the GPU."""
    x, y = images()
    loss = nn.CrossEntropyLoss()
    return [
        ParameterOperator(
            convnet().to(d, dtype), loss, [(x.to(d, dtype), y.to(d))], part=part, **options
        )
        for d in ("cpu", CUDA)
    ]


def far(one, two):
    one, two = one.detach().cpu().double(), two.detach().cpu().double()
    return float((one - two).norm() / two.norm())


@pytest.mark.parametrize("module, output, loss, given, part", cases.CASES)
def test_products_are_those_of_double_backward(module, output, loss, given, part, monkeypatch):
    monkeypatch.setattr(cases, "DEVICE", CUDA)
    monkeypatch.setattr(cases, "WEIGHTS", cases.WEIGHTS.to(CUDA))
    cases.test_products_are_right_or_refused(module, output, loss, given, part, monkeypatch)


@pytest.mark.parametrize("part", ["hessian", "gauss_newton", "fisher", "empirical_fisher"])
@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-10), (torch.float32, 1e-5)])
def test_products_agree_with_the_processor(part, dtype, tolerance):
    truth = pair(part)[0]
    found = pair(part, dtype)[1]
    v = normal(truth.shape[0], 3, generator=seeded())
    assert far(found @ v.to(CUDA, dtype), truth @ v) < tolerance
    assert far(found.gradient(), truth.gradient()) < tolerance


ESTIMATES = {
    "trace": lambda o: rc.trace_estimate(o, generator=seeded(1)).value,
    "upper bound": lambda o: rc.upper_bound_estimate(o, generator=seeded(1)).value,
    "eigenvalues": lambda o: rc.top_eigenpairs(o, 3, generator=seeded(1)).values.tolist(),
    "density": lambda o: rc.spectral_density(o, generator=seeded(1)).nodes.flatten().tolist(),
    "coupling": lambda o: rc.discarded_coupling(o, generator=seeded(1)).value,
}


@pytest.mark.parametrize("name", list(ESTIMATES))
def test_estimates_of_parameters_agree_with_the_processor(name):
    here, there = (ESTIMATES[name](operator) for operator in pair())
    assert torch.tensor(there).flatten().tolist() == pytest.approx(
        torch.tensor(here).flatten().tolist(), rel=1e-4
    )


LIKE_MODULES = [name for name in GRAPHS if name not in ("skip", "attention", "convolution")]


@pytest.mark.parametrize("name", LIKE_MODULES)
def test_exact_blocks_and_factors_agree_with_the_processor(name):
    case = make(name)
    dag, x, y = copy.deepcopy(case.dag), case.x.to(CUDA), case.y.to(CUDA)
    for node in dag.nodes.values():
        if isinstance(node.fn, nn.Module):
            node.fn.to(CUDA)
    here, there = (rc.split_blocks(*c) for c in (case.given, (dag, x, y)))
    for part in ("total", "gauss_newton", "tensor"):
        one, two = getattr(there, part), getattr(here, part)
        assert relative_error({k: one[k].cpu() for k in two}, dict(two.items())) < 1e-10
    metrics = [rc.inter_layer_metrics(*c, generator=seeded(1)) for c in (case.given, (dag, x, y))]
    for key, m in metrics[0].items():
        assert metrics[1][key].R.value == pytest.approx(m.R.value, rel=1e-8)
        assert metrics[1][key].D.value == pytest.approx(m.D.value, rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_layers_of_modules_agree_with_the_processor(dtype):
    for module, x, y in (
        (ResNet(), torch.randn(3, 1, 8, 8), torch.tensor([0, 1, 2])),
        (Encoder(), torch.randn(3, 4, 2), torch.tensor([0, 1, 2])),
    ):

        def loss(f, t):
            return F.cross_entropy(f["logits"] if isinstance(f, dict) else f, t)

        module = module.double().eval()
        here = LayerOperator(module, loss, (x.double(), y))
        moved = copy.deepcopy(module).to(CUDA, dtype)
        there = LayerOperator(moved, loss, (x.to(CUDA, dtype), y.to(CUDA)))
        found = [rc.inter_layer_metrics(o, generator=seeded(1)) for o in (here, there)]
        for key, m in found[0].items():
            assert found[1][key].R.value == pytest.approx(
                m.R.value, rel=1e-8 if dtype == torch.float64 else 1e-4
            )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_certificates_say_ok(dtype):
    for part in ("hessian", "gauss_newton"):
        found = rc.verify(pair(part, dtype)[1], generator=seeded())
        assert found.ok, str(found)
    torch.manual_seed(0)
    tokens = torch.randint(5, (3, 4), device=CUDA)
    loss = lambda f, t: F.cross_entropy(f.flatten(0, 1), t.flatten())  # noqa: E731
    module = LanguageModel().to(CUDA, dtype)
    found = rc.verify(
        ParameterOperator(module, loss, [(tokens[:, :-1], tokens[:, 1:])]), generator=seeded()
    )
    assert found.ok, str(found)


def test_draws_of_dropout_are_refused_or_leave_the_generator():
    x, y = (t.to(CUDA) for t in images())
    module = nn.Sequential(
        nn.Flatten(), nn.Linear(768, 8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, 10)
    ).to(CUDA)
    before = torch.cuda.get_rng_state()
    with refusal("draws at random"):
        ParameterOperator(module.train(), nn.CrossEntropyLoss(), [(x, y)])
    operator = ParameterOperator(module.eval(), nn.CrossEntropyLoss(), [(x, y)])
    rc.trace_estimate(operator)
    rc.verify(operator)
    assert torch.equal(torch.cuda.get_rng_state(), before)


@pytest.mark.parametrize("part", ["hessian", "gauss_newton"])
def test_a_product_does_not_wait_for_the_gpu(part):
    operator = pair(part, torch.float32)[1]
    v = torch.randn(operator.shape[0], generator=seeded()).to(CUDA)
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
    x, y = (t.to(CUDA) for t in images(512))
    budget = 64 * MIB
    module = convnet().to(CUDA)
    operator = ParameterOperator(
        module, nn.CrossEntropyLoss(), [(x, y)], part=part, memory_budget=budget
    )
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


def graph_data(device):
    x, edges = (
        torch.randn(40, 8, generator=seeded(1)),
        torch.randint(40, (2, 4000), generator=seeded(2)),
    )
    return tuple(t.to(device) for t in (x, *edges)), (torch.arange(40) % 3).to(device)


def test_sums_in_another_order_are_not_taken_for_random_draws():
    module, loss = scattered(), nn.CrossEntropyLoss()
    (x, *edges), y = graph_data("cpu")
    truth = ParameterOperator(copy.deepcopy(module).double(), loss, [((x.double(), *edges), y)])
    found = ParameterOperator(module.to(CUDA), loss, [graph_data(CUDA)])
    v = normal(truth.shape[0], generator=seeded())
    assert far(found @ v.to(CUDA, torch.float32), truth @ v) < 1e-4


def test_an_index_out_of_range_in_a_part_of_a_batch_does_not_end_the_process():
    """Edges that point to nodes of another part, and labels that count the examples of a batch."""
    loss = nn.CrossEntropyLoss()
    module = scattered().to(CUDA)
    for options in (
        {"part": "empirical_fisher"},
        {"part": "gauss_newton", "memory_budget": 1 << 16},
    ):
        with contextlib.suppress(ValueError):
            ParameterOperator(module, loss, [graph_data(CUDA)], **options)
    with refusal("cannot be measured alone"):
        ParameterOperator(module, loss, [graph_data(CUDA), graph_data(CUDA)])
    x = graph_data(CUDA)[0][0]
    # scores of every first example with every second one: the label of a row is its number
    scores = Own(lambda m, x, z: m.a(x) @ m.b(z).mT, a=nn.Linear(8, 4), b=nn.Linear(8, 4))
    pairs = scores.to(CUDA)
    found = ParameterOperator(pairs, loss, [((x, x.flip(0)), torch.arange(40, device=CUDA))])
    assert rc.verify(found, generator=seeded()).ok
    assert float(torch.ones(3, device=CUDA).sum()) == 3


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_attention_in_half_precision(dtype):
    """Fast kernels of attention have no second derivative; the operator takes others."""
    layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
    module = nn.Sequential(layer, nn.Linear(64, 3)).eval()
    x, y = torch.randn(4, 16, 64), torch.arange(64).view(4, 16) % 3
    loss = lambda f, t: F.cross_entropy(f.flatten(0, 1), t.flatten())  # noqa: E731
    truth = ParameterOperator(copy.deepcopy(module).double(), loss, [(x.double(), y)])
    found = ParameterOperator(module.to(CUDA, dtype), loss, [(x.to(CUDA, dtype), y.to(CUDA))])
    v = normal(truth.shape[0], generator=seeded())
    assert far(found @ v.to(CUDA, dtype), truth @ v) < 0.1


def test_networks_on_another_device_than_the_data_are_refused_in_one_line():
    x, y = images()
    two = nn.Sequential(nn.Flatten(), nn.Linear(768, 4), nn.Linear(4, 10).to(CUDA))
    for module, given, target in (
        (convnet().to(CUDA), x, y),
        (convnet(), x.to(CUDA), y.to(CUDA)),
        (two, x, y),
    ):
        for build in (
            lambda m, g, t: ParameterOperator(m, nn.CrossEntropyLoss(), [(g, t)]),
            lambda m, g, t: LayerOperator(m, nn.CrossEntropyLoss(), (g, t)),
        ):
            with pytest.raises(ValueError, match="cuda") as error:
                build(module, given, target)
            assert "\n" not in str(error.value)


def test_vectors_of_the_processor_are_taken():
    operator = pair()[1]
    ones = torch.ones(operator.shape[0], dtype=torch.float64)
    expected = operator @ ones.to(CUDA)
    assert far(operator @ ones, expected) < 1e-12
    assert far(torch.as_tensor(rc.as_linear_operator(operator) @ ones.numpy()), expected) < 1e-12


@pytest.mark.parametrize("device", ["cpu", CUDA])
def test_every_public_function_runs_there_and_with_that_default_device(device):
    net = tanh_net(6, 16, 3).to(CUDA)
    x, y = torch.randn(12, 6, device=CUDA), torch.arange(12, device=CUDA) % 3
    pairs = [("0", "2"), ("0", "0"), ("2", "2")]
    before = torch.get_default_device()
    torch.set_default_device(device)
    try:
        operator = ParameterOperator(net, nn.CrossEntropyLoss(), [(x[:5], y[:5]), (x[5:], y[5:])])
        for function in (
            rc.trace_estimate,
            rc.upper_bound_estimate,
            rc.spectral_density,
            rc.discarded_coupling,
        ):
            function(operator)
        rc.top_eigenpairs(operator, 2)
        rc.inter_layer_metrics(operator)
        assert rc.verify(LayerOperator(net, nn.CrossEntropyLoss(), (x, y))).ok
        assert rc.verify(operator, generator=seeded()).ok
        dag = rc.Dag.from_sequential(net)
        for measure in (
            rc.exact_blocks,
            rc.split_blocks,
            rc.gauss_newton_blocks,
            metrics.gauss_newton_factors,
        ):
            measure(dag, x, y)
        rc.inter_layer_metrics(dag, x, y)
        layers = rc.CurvatureOperator(dag, x, y)
        layers.block(*pairs[0]).dense()
        rc.top_eigenpairs(layers, 2)
        assert rc.verify(layers, generator=seeded()).ok
        assert rc.verify(dag, x, y, generator=seeded()).ok
    finally:
        torch.set_default_device(before)


def test_results_are_saved_and_loaded(tmp_path):
    pairs = rc.top_eigenpairs(pair()[1], 2, generator=seeded(1))
    rc.save(pairs, tmp_path / "pairs")
    back = rc.load(tmp_path / "pairs")
    assert back.values.tolist() == pairs.values.tolist()


def test_a_training_goes_on_where_there_is_no_gpu(tmp_path):
    states = DiskCheckpoints(tmp_path)
    states.save("resume", {"network": torch.ones(3, device=CUDA)})
    loaded = states.load("resume")
    assert loaded is not None
    assert loaded["network"].device.type == "cpu"
