"""What every process of a data-parallel measurement checks."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import runner.curvature as rc
from runner.curvature import ParameterOperator
from tests.curvature.oracles import flat_gradient, parameter_matrix, relative
from tests.draws import normal, seeded, tanh_net

Batches = list[tuple[Tensor, Tensor]]
SIZE = 39
CROSS = nn.CrossEntropyLoss()


def network(tied: bool = False) -> nn.Module:
    torch.manual_seed(0)
    net = tanh_net(4, 3, 3, 3).double()
    if tied:
        net[4].weight = net[2].weight
    return net


def data(ignored: Sequence[int] = ()) -> tuple[Tensor, Tensor]:
    generator = seeded(1)
    x, y = normal(23, 4, generator=generator), torch.randint(3, (23,), generator=generator)
    y[list(ignored)] = -100
    return x, y


def shares(x: Tensor, y: Tensor) -> list[Batches]:
    """Batches of 5, 3, 2, ... examples, and two of those that are left: unequal for every rank."""
    count = dist.get_world_size()
    sizes = [5, 3, 2, 4][: count - 1] if count > 2 else [7]
    cuts = [*sizes, 6, len(x) - sum(sizes) - 6]
    *single, first, last = zip(x.split(cuts), y.split(cuts), strict=True)
    return [*([piece] for piece in single), [first, last]]


def operator(module: nn.Module, batches: Batches, loss: Any = CROSS, part: Any = "hessian") -> Any:
    return ParameterOperator(module, loss, batches, part=part, process_group=dist.group.WORLD)


def assert_whole(loss: Any, ignored: Sequence[int], *parts: str) -> None:
    """Every part and the gradient are those of the whole data, by double backward."""
    module, (x, y) = network(), data(ignored)
    vectors = normal(SIZE, 3, generator=seeded(2))
    own = shares(x, y)[dist.get_rank()]
    for part in parts:
        found = operator(DistributedDataParallel(module), own, loss, part)
        expected = parameter_matrix(part, module, loss, x, y)
        assert found.examples == len(x)
        assert relative(found @ vectors, expected @ vectors) < 1e-11, (part, ignored)
    gradient = flat_gradient(loss(module(x), y), module.parameters())
    assert relative(found.gradient(), gradient) < 1e-11


def squares(f: Tensor, t: Tensor) -> Tensor:
    return nn.functional.mse_loss(f, nn.functional.one_hot(t, 3).double())


def matrices() -> None:
    assert_whole(CROSS, (), "hessian", "gauss_newton")
    assert_whole(CROSS, (0, 1, 4, 8, 20, 21, 22), "hessian")
    assert_whole(CROSS, range(7), "hessian", "gauss_newton")  # all labels of the first process
    assert_whole(squares, (), "hessian")


def numbers(found: Any) -> Tensor:
    return torch.as_tensor(found, dtype=torch.float64)


def metrics_of(operator: Any, generator: torch.Generator) -> list[float]:
    (found,) = rc.inter_layer_metrics(operator, [("0", "4")], generator=generator).values()
    return [found.R.value, found.C.value, found.D.value, found.gap.value]


ESTIMATES: dict[str, Callable[..., Any]] = {
    "trace": lambda o, generator: rc.trace_estimate(o, 15, generator=generator).value,
    "hutchinson": lambda o, generator: (
        rc.trace_estimate(o, 15, "hutchinson", generator=generator).value
    ),
    "bound": lambda o, generator: (
        rc.upper_bound_estimate(o, 10, generator=generator).trace_of_square
    ),
    "eigenvalues": lambda o, generator: (
        rc.top_eigenpairs(o, 2, "magnitude", generator=generator).values
    ),
    "density": lambda o, generator: rc.spectral_density(o, 2, 8, generator=generator).density,
    "Phi": lambda o, generator: rc.discarded_coupling(o, 4, generator=generator).value,
    "metrics": metrics_of,
}


def estimators() -> None:
    """The numbers of every estimator are those that one process finds on the whole data."""
    module, rank, own = network(), dist.get_rank(), shares(*data())
    one = ParameterOperator(module, CROSS, [batch for share in own for batch in share])
    several = operator(module, own[rank])
    for name, estimate in ESTIMATES.items():  # the generator of the first process counts
        found = numbers(estimate(several, generator=seeded(5 + rank)))
        assert relative(found, numbers(estimate(one, generator=seeded(5)))) < 1e-9, name
    trace = numbers(rc.trace_estimate(several, 400).value)
    assert relative(trace, one.dense().trace()) < 1e-11
    vector = torch.ones(SIZE)
    newton, expected = several.with_part("gauss_newton"), one.with_part("gauss_newton")
    assert relative(newton @ vector, expected @ vector) < 1e-11


def mistakes() -> None:
    """Every process raises where one of them cannot go on; nobody waits."""
    module, rank = network(), dist.get_rank()
    own = shares(*data())[rank]

    def refused(message: str, run: Callable[[], Any], elsewhere: str = "") -> None:
        """Raised by process 1, and by the others with the number of that process."""
        text = message if rank == 1 or not elsewhere else elsewhere
        with pytest.raises(rc.MeasurementError, match=text):
            run()

    text = "the data have no batches"
    empty = partial(operator, module, [] if rank == 1 else own)
    refused(f"^{text}", empty, f"^process 1 failed: {text}")
    unequal = network()
    with torch.no_grad():
        unequal[0].weight[0, 0] += float(rank == 1)
    differs = "differs between process 0 and process 1"
    refused(f"0.weight {differs}", partial(operator, unequal, own))
    part = "hessian" if rank == 1 else "gauss_newton"
    refused(f"part {differs}", partial(operator, module, own, part=part))
    found = operator(module, own)
    refused("multiply different vectors", lambda: found @ torch.full((SIZE,), 1.0 + rank))
    refused("verify an operator without process_group", lambda: rc.verify(found))
    if rank == 1:
        module[0].weight.data.mul_(2)
    refused("^the loss has changed since", found.refuse_changes, "^process 1 failed: the loss has")
    if rank == 1:
        with torch.no_grad():
            module[0].weight.mul_(2)
    text = "^process 1 failed during this product"
    refused("the loss has changed since", lambda: found @ torch.ones(SIZE), text)


def spread() -> None:
    """Parameters that FSDP2 spreads over the processes, of layers and of the rest, before and after
    a forward pass."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    (x, y), module, tied, called = data(), network(tied=True), network(tied=True), []
    module[2].register_forward_hook(lambda *_: called.append(1))
    own, vector = shares(x, y)[dist.get_rank()], normal(30, generator=seeded(3))
    one = ParameterOperator(tied, CROSS, (x, y))
    fully_shard(module[0], mesh=mesh)
    fully_shard(module, mesh=mesh)
    found = operator(module, own)
    assert relative(found @ vector, one @ vector) < 1e-11 and called
    module(x)  # the parameters of the whole module are in one piece after it
    again = operator(module, own).with_part("gauss_newton")
    assert relative(again @ vector, one.with_part("gauss_newton") @ vector) < 1e-11
    assert rc.verify(ParameterOperator(module, CROSS, own)).ok
    root = fully_shard(network(), mesh=mesh)
    root(x)  # no parameter is sharded after it
    plain = ParameterOperator(network(), CROSS, (x, y))
    assert relative(operator(root, own).gradient(), plain.gradient()) < 1e-11
    module.reshard()
    for net in (module, tied):
        CROSS(net(x), y).backward()
        torch.optim.SGD(net.parameters(), 0.1).step()
    with pytest.raises(rc.MeasurementError, match=r"loss has changed since|process \d failed"):
        found @ vector
    after = ParameterOperator(tied, CROSS, (x, y)).gradient()
    assert relative(operator(module, own).gradient(), after) < 1e-11


def checked(rank: int, store: str, count: int) -> None:
    """All checks in one process."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=count)
    for check in (matrices, estimators, mistakes, spread):
        check()
    dist.barrier()
    dist.destroy_process_group()
