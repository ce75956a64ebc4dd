"""What every process of a data-parallel measurement checks."""

from collections.abc import Callable, Mapping, Sequence
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


def network() -> nn.Module:
    torch.manual_seed(0)
    return tanh_net(4, 3, 3, 3).double()


def data(ignored: Sequence[int] = ()) -> tuple[Tensor, Tensor]:
    generator = seeded(1)
    x, y = (
        normal(23, 4, generator=generator),
        torch.randint(3, (23,), generator=generator),
    )
    y[list(ignored)] = -100
    return x, y


def shares(x: Tensor, y: Tensor) -> list[Batches]:
    """Batches of 5, 3, 2, ... examples, and the last one of those that are left: unequal for every
    rank."""
    sizes = [5, 3, 2, 4][: dist.get_world_size() - 1] if dist.get_world_size() > 2 else [7]
    cuts = [*sizes, len(x) - sum(sizes)]
    pieces = list(zip(x.split(cuts), y.split(cuts), strict=True))
    last = pieces[-1]
    return [[p] for p in pieces[:-1]] + [[(last[0][:6], last[1][:6]), (last[0][6:], last[1][6:])]]


def operator(
    module: nn.Module, loss: Any, batches: Batches, part: Any = "hessian", **options: Any
) -> Any:
    return ParameterOperator(
        module, loss, batches, part=part, process_group=dist.group.WORLD, **options
    )


def matrices() -> None:
    """Every part and the gradient are those of the whole data, by double backward."""
    plain = nn.CrossEntropyLoss()
    cases: list[tuple[Any, tuple[int, ...], tuple[str, ...]]] = [
        (plain, (), ("hessian", "gauss_newton", "empirical_fisher")),
        (plain, (0, 1, 4, 8, 20, 21, 22), ("hessian",)),
        (
            plain,
            tuple(range(7)),
            ("hessian", "fisher"),
        ),  # all labels of the first process are ignored
        (
            lambda f, t: nn.functional.mse_loss(f, nn.functional.one_hot(t, 3).double()),
            (),
            ("hessian",),
        ),
    ]
    module, rank = network(), dist.get_rank()
    vectors = normal(SIZE, 3, generator=seeded(2))
    for loss, ignored, parts in cases:
        x, y = data(ignored)
        for part in parts:
            found = operator(DistributedDataParallel(module), loss, shares(x, y)[rank], part)
            assert found.examples == len(x)
            assert (
                relative(found @ vectors, parameter_matrix(part, module, loss, x, y) @ vectors)
                < 1e-11
            ), (
                part,
                ignored,
            )
        value = loss(module(x), y)
        expected = flat_gradient(value, module.parameters())
        assert relative(found.gradient(), expected) < 1e-11


def estimators() -> None:
    """The numbers of every estimator are those that one process finds on the whole data."""
    module, loss, rank = network(), nn.CrossEntropyLoss(), dist.get_rank()
    own = shares(*data())
    one = ParameterOperator(module, loss, [batch for share in own for batch in share])
    several = operator(module, loss, own[rank])

    def numbers(*found: float) -> Tensor:
        return torch.tensor(found, dtype=torch.float64)

    def values(found: Mapping[Any, Any]) -> Tensor:
        return numbers(*(estimate.value for estimate in found.values()))

    def of_metrics(o: Any, s: int) -> Tensor:
        metrics = rc.inter_layer_metrics(o, [("0", "4")], generator=seeded(s))
        rows = [numbers(m.R.value, m.C.value, m.D.value, m.gap.value) for m in metrics.values()]
        return torch.cat(rows)

    both: dict[str, Callable[[Any, int], Any]] = {
        "trace": lambda o, s: numbers(rc.trace_estimate(o, 15, generator=seeded(s)).value),
        "hutchinson": lambda o, s: numbers(
            rc.trace_estimate(o, 15, "hutchinson", generator=seeded(s)).value
        ),
        "bound": lambda o, s: numbers(
            *rc.upper_bound_estimate(o, 10, generator=seeded(s)).trace_of_square
        ),
        "eigenvalues": lambda o, s: (
            rc.top_eigenpairs(o, 2, "magnitude", generator=seeded(s)).values
        ),
        "density": lambda o, s: rc.spectral_density(o, 2, 8, generator=seeded(s)).density,
        "Phi": lambda o, s: numbers(rc.discarded_coupling(o, 4, generator=seeded(s)).value),
        "metrics": of_metrics,
    }
    for name, estimate in both.items():  # the generator of the first process is the one that counts
        assert relative(estimate(several, 5 + rank), estimate(one, 5)) < 1e-9, name
    assert (
        relative(numbers(rc.trace_estimate(several, 400).value), one.dense().trace()[None]) < 1e-11
    )
    vector = torch.ones(SIZE)
    assert relative(several.with_part("fisher") @ vector, one.with_part("fisher") @ vector) < 1e-11


def mistakes() -> None:
    """Every process raises where one of them cannot go on; nobody waits."""
    module, loss, rank = network(), nn.CrossEntropyLoss(), dist.get_rank()
    own = shares(*data())[rank]

    def refused(message: str, run: Callable[[], Any], elsewhere: str = "") -> None:
        """Raised by process 1, and by the others with the number of that process."""
        with pytest.raises(
            rc.MeasurementError, match=message if rank == 1 or not elsewhere else elsewhere
        ):
            run()

    empty = own if rank != 1 else []
    refused(
        "^the data have no batches",
        lambda: operator(module, loss, empty),
        "^process 1 failed: the data have no batches",
    )
    unequal = network()
    with torch.no_grad():
        unequal[0].weight[0, 0] += float(rank == 1)
    refused(
        "0.weight differs between process 0 and process 1", lambda: operator(unequal, loss, own)
    )
    part = "hessian" if rank == 1 else "gauss_newton"
    refused(
        "part differs between process 0 and process 1", lambda: operator(module, loss, own, part)
    )
    found = operator(module, loss, own)
    refused("multiply different vectors", lambda: found @ torch.full((SIZE,), 1.0 + rank))
    refused("verify an operator without process_group", lambda: rc.verify(found))
    if rank == 1:
        module[0].weight.data.mul_(2)
    refused("^the loss has changed since", found.refuse_changes, "^process 1 failed: the loss has")
    if rank == 1:
        with torch.no_grad():
            module[0].weight.mul_(2)
    refused(
        "the loss has changed since",
        lambda: found @ torch.ones(SIZE),
        "^process 1 failed during this product",
    )


def spread() -> None:
    """Parameters that FSDP2 spreads over the processes, of layers and of the rest, before and after
    a forward pass."""
    mesh, loss, rank = (
        init_device_mesh("cpu", (dist.get_world_size(),)),
        nn.CrossEntropyLoss(),
        dist.get_rank(),
    )
    (x, y), module, called = data(), network(), []
    module[2].register_forward_hook(lambda *_: called.append(rank))
    module[4].weight = module[2].weight  # tied
    tied = network()
    tied[4].weight = tied[2].weight
    own, vector = shares(x, y)[rank], normal(30, generator=seeded(3))
    one = ParameterOperator(tied, loss, (x, y))
    fully_shard(module[0], mesh=mesh)
    fully_shard(module, mesh=mesh)
    found = operator(module, loss, own)
    assert relative(found @ vector, one @ vector) < 1e-11 and called
    module(x)  # the parameters of the whole module are in one piece after it
    again = operator(module, loss, own).with_part("gauss_newton")
    assert relative(again @ vector, one.with_part("gauss_newton") @ vector) < 1e-11
    assert rc.verify(ParameterOperator(module, loss, own)).ok
    root = fully_shard(network(), mesh=mesh)
    root(x)  # no parameter is sharded after it
    plain = ParameterOperator(network(), loss, (x, y))
    assert relative(operator(root, loss, own).gradient(), plain.gradient()) < 1e-11
    module.reshard()
    for net in (module, tied):
        loss(net(x), y).backward()
        torch.optim.SGD(net.parameters(), 0.1).step()
    with pytest.raises(rc.MeasurementError, match=r"loss has changed since|process \d failed"):
        found @ vector
    after = ParameterOperator(tied, loss, (x, y)).gradient()
    assert relative(operator(module, loss, own).gradient(), after) < 1e-11


def checked(rank: int, store: str, count: int) -> None:
    """All checks in one process."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=count)
    for check in (matrices, estimators, mistakes, spread):
        check()
    dist.barrier()
    dist.destroy_process_group()
