"""One network, its data divided among several processes.

Each process builds an operator of its own share of the examples. The Hessian of all data is the
mean of these operators, weighted by their numbers of examples: ten lines around `@`. `torchrun`
starts the processes; on a cluster, one `torchrun` on each node, all with the address of the first.

This serves what takes any operator: eigenpairs, trace, density, bound, and errors over batches. R,
C, D, gap and Φ need an operator of one process, and modules whose weights are sharded are refused.
Every process makes the same calls, with the same random vectors (as without `generator=`), on
processors of one kind. A loss that is no plain mean over examples (ignored labels, weights of
classes) needs its own weights in place of `examples`.
"""

# run: torchrun --standalone --nproc-per-node=2

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn

from runner.curvature import (
    ParameterOperator,
    batch_errors,
    spectral_density,
    top_eigenpairs,
    trace_estimate,
    upper_bound_estimate,
)


class MeanOverProcesses:
    """The mean over the examples of all processes, each of which has an operator of its share."""

    def __init__(self, operator):
        self.operator = operator
        self.shape, self.dtype, self.device = operator.shape, operator.dtype, operator.device
        total = torch.tensor(operator.examples, device=self.device)
        dist.all_reduce(total)
        self.weight = operator.examples / int(total)

    def __matmul__(self, vector):
        product = self.weight * (self.operator @ vector)
        dist.all_reduce(product)
        return product


dist.init_process_group("gloo")  # "nccl" where network and data are on GPUs
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)  # the same weights in every process
net = nn.Sequential(nn.Linear(64, 16), nn.Tanh(), nn.Linear(16, 10)).eval()
digits = load_digits()
x = torch.tensor(digits.data, dtype=torch.float32) / 16
y = torch.tensor(digits.target)


def hessian(start, stop):
    """Of these examples, of which each process takes every size-th."""
    own = slice(start + rank, stop, size)
    return MeanOverProcesses(ParameterOperator(net, nn.CrossEntropyLoss(), (x[own], y[own])))


whole = hessian(0, 1001)
found = {
    "three eigenvalues": top_eigenpairs(whole, 3).values,
    "trace": trace_estimate(whole).value,
    "bound": upper_bound_estimate(whole).value,
    "largest node of the density": spectral_density(whole, 2, 20).nodes.max(),
    "error of the largest over four batches": batch_errors(
        [hessian(250 * batch, 250 * batch + 250) for batch in range(4)]
    )["lambda_1"].error,
}
if rank == 0:
    for name, value in found.items():
        numbers = torch.as_tensor(value).reshape(-1).tolist()
        print(f"{name}: {', '.join(f'{number:.4f}' for number in numbers)}")
dist.barrier()  # no process ends its connections while another still reads from them
dist.destroy_process_group()
