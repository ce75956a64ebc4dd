"""Float32 stays float32 when torch is told that less will do: TF32 on a GPU, bfloat16 on processors
with such units."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.backends import cuda, cudnn, mkldnn

import runner.curvature as rc
from runner.curvature import LayerOperator, ParameterOperator
from runner.curvature.basics.precision import full_precision, needs_settings
from tests.curvature.oracles import PARTS
from tests.draws import seeded, tanh_net

KINDS = {
    "cuda": (cuda.matmul,),
    "cudnn": (cudnn.conv, cudnn.rnn),
    "mkldnn": (mkldnn.matmul, mkldnn.conv, mkldnn.rnn),
}


def state() -> tuple[Any, ...]:
    found: list[Any] = [
        setting.fp32_precision for settings in KINDS.values() for setting in settings
    ]
    for read in (
        lambda: cudnn.allow_tf32,
        lambda: cuda.matmul.allow_tf32,
        torch.get_float32_matmul_precision,
    ):
        try:
            found.append(read())
        except RuntimeError:
            found.append("mixed")
    return tuple(found)


def newer() -> None:
    cudnn.conv.fp32_precision = "tf32"
    mkldnn.matmul.fp32_precision = "bf16"


SETTINGS: dict[str, Callable[[], None]] = {
    "as it comes": lambda: None,
    "high": lambda: torch.set_float32_matmul_precision("high"),
    "medium": lambda: torch.set_float32_matmul_precision("medium"),
    "newer": newer,
}


@pytest.fixture(autouse=True)
def put_back() -> Iterator[None]:
    before = [(s, s.fp32_precision) for settings in KINDS.values() for s in settings]
    yield
    cudnn.allow_tf32 = True
    torch.set_float32_matmul_precision("highest")
    for setting, precision in before:
        setting.fp32_precision = precision


@pytest.mark.parametrize("name", list(SETTINGS))
def test_settings_are_full_inside_and_put_back(name):
    SETTINGS[name]()
    before = state()
    with full_precision():
        assert set(state()[:6]) <= {"none", "ieee"}
        assert state()[6:] == (False, False, "highest")  # modules may read these
        with full_precision():
            pass
        assert set(state()[:6]) <= {"none", "ieee"}
    assert state() == before


@pytest.mark.parametrize("name", list(SETTINGS))
def test_products_on_a_cpu_need_settings_where_its_library_is_told_that_less_will_do(name):
    SETTINGS[name]()
    cpu = torch.device("cpu")
    less = any(setting.fp32_precision not in ("none", "ieee") for setting in KINDS["mkldnn"])
    assert less == (name != "as it comes")
    assert needs_settings(torch.float32, cpu) == less
    assert needs_settings(torch.float32, torch.device("cuda"))
    assert not needs_settings(torch.float64, cpu)
    with full_precision():
        assert not needs_settings(torch.float32, cpu)
        with ThreadPoolExecutor(1) as another:  # this thread may put them back meanwhile
            assert another.submit(needs_settings, torch.float32, cpu).result()


def network() -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(0)
    net = tanh_net(64, 96, 96, 3)
    return net, torch.randn(32, 64), torch.arange(32) % 3


def numbers(part: str) -> Any:
    net, x, y = network()
    if part in PARTS:
        operator = ParameterOperator(net, nn.CrossEntropyLoss(), (x, y), part=part)
        product = operator @ torch.randn(operator.shape[0], generator=seeded())
        return (
            product,
            operator.gradient(),
            rc.top_eigenpairs(operator, 2, generator=seeded()).values,
        )
    if part == "between layers":
        between = LayerOperator(net, nn.CrossEntropyLoss(), (x, y))
        return between.blocks()["0", "2"], rc.verify(between).ok
    dag = rc.Dag.from_sequential(net)
    if part == "blocks":
        blocks = rc.split_blocks(dag, x, y)
        return blocks.total["0", "2"], blocks.gauss_newton["0", "2"]
    layers = LayerOperator(dag.as_module(), dag.loss, (x, y), dag.order)
    return layers.block("0", "2").dense(), rc.verify(dag, x, y).ok


@pytest.mark.parametrize("part", [*PARTS, "between layers", "blocks", "layers"])
def test_results_do_not_depend_on_the_settings(part):
    expected = numbers(part)
    torch.set_float32_matmul_precision("medium")
    for found, own in zip(numbers(part), expected, strict=True):
        assert torch.equal(found, own) if isinstance(own, Tensor) else found == own


def test_threads_share_the_settings_and_leave_them_as_they_were():
    torch.set_float32_matmul_precision("medium")
    before, wrong = state(), []

    def work() -> None:
        for _ in range(300):
            with full_precision():
                if not set(state()[:6]) <= {"none", "ieee"}:
                    wrong.append(state())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert state() == before
