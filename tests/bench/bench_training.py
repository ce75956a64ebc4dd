"""One training epoch: the in-memory loop against a DataLoader with autograd, and every network of the experiments.

Operations of one epoch on 50,000 images (plain network, depth 8, width 64, batch 128): forward and weight gradient of
the projection 4·3072·64, forward and two gradients of each block 6·64², head 6·64·10 per image, 49 GFLOP in all, of
which the projection is 40; at the 90 GFLOP/s that one thread reaches here, 0.55 s. Times are processor time of the
one thread, so that a busy machine does not count. Run: python -m tests.bench.bench_training [all].
"""

from __future__ import annotations

import resource
import sys
import time
from itertools import pairwise

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from runner.data import Split, token_regression
from runner.models import attention_regressor, diamond, mlp, positionwise_mlp
from runner.training.minibatch import train

COUNT = 50_000


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def images(count: int, seed: int) -> Split:
    """Bytes of CIFAR's shape; an epoch takes as long on noise as on photographs."""
    pixels = torch.randint(0, 256, (count, 3, 32, 32), generator=generator(seed), dtype=torch.uint8)
    return Split(pixels, torch.randint(10, (count,), generator=generator(seed + 1)))


def ours(network, train_split: Split, test_split: Split, **settings) -> float:
    """Best seconds per epoch of three, the evaluation of a small test split included."""
    marks = [time.process_time()]
    train(
        network,
        train_split,
        test_split,
        order=generator(3),
        epochs=3,
        progress=lambda *_: marks.append(time.process_time()),
        **settings,
    )
    return min(b - a for a, b in pairwise(marks))


def plain_loop(network, batches) -> float:
    """Autograd, torch's clipping and SGD, whatever gives the batches. Seconds per epoch."""
    optimizer = torch.optim.SGD(network.parameters(), 0.01, momentum=0.9, weight_decay=1e-4)
    started = time.process_time()
    for x, y in batches:
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(x), y).backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
    return time.process_time() - started


def with_data_loader(split: Split) -> float:
    inputs = (split.inputs.float() / 255 - 0.5).div_(0.5).flatten(1)
    loader = DataLoader(TensorDataset(inputs, split.targets), batch_size=128, shuffle=True)
    return plain_loop(mlp(generator=generator(1)), loader)


def in_memory(split: Split) -> float:
    inputs = (split.inputs.float() / 255 - 0.5).div_(0.5).flatten(1)
    order = torch.randperm(len(split)).split(128)
    return plain_loop(mlp(generator=generator(1)), ((inputs[i], split.targets[i]) for i in order))


def networks():
    for depth in (8, 10, 12):
        yield f"exp1 plain L={depth}", mlp(depth=depth, generator=generator(1))
        yield f"exp1 residual L={depth}", mlp(depth=depth, residual=True, generator=generator(1))
    for depth in (16, 32):
        yield f"exp1 plain L={depth} width 128", mlp(depth=depth, width=128, generator=generator(1))
        yield (
            f"exp1 residual L={depth} width 128",
            mlp(depth=depth, width=128, residual=True, generator=generator(1)),
        )
    for depth in (8, 12, 16):
        yield (
            f"exp1b spectral L={depth}",
            mlp(depth=depth, norm=False, spectral=True, generator=generator(1)),
        )
    yield "exp1b residual L=16", mlp(depth=16, residual=True, generator=generator(1))
    for name in ("relu", "leaky_relu", "softplus", "silu", "gelu"):
        yield f"exp3 {name}", mlp(depth=6, activation=name, norm=False, generator=generator(1))
        yield f"exp3b {name}", mlp(depth=6, activation=name, generator=generator(1))
    for k in (1, 2, 3):
        for merge in ("sum", "cat"):
            for name in ("relu", "silu"):
                yield (
                    f"exp4 k={k} {merge} {name}",
                    diamond(branch_depth=k, merge=merge, activation=name, generator=generator(1)),
                )


def report(name: str, seconds: float) -> None:
    print(f"{name}: ours {1e3 * seconds:.0f} ms per epoch", flush=True)


def main() -> None:
    torch.set_num_threads(1)
    train_split, test_split = images(COUNT, 1), images(100, 2)
    seconds = ours(mlp(generator=generator(1)), train_split, test_split)
    for name, opponent in (("in-memory autograd loop", in_memory), ("DataLoader loop", with_data_loader)):
        other = opponent(train_split)
        print(
            f"epoch of plain L=8 width 64, against {name}: ours {1e3 * seconds:.0f} ms, opponent {1e3 * other:.0f} ms, "
            f"ratio {other / seconds:.2f}",
            flush=True,
        )
    if sys.argv[1:] == ["all"]:
        for name, network in networks():
            report(name, ours(network, train_split, test_split))
        data = token_regression(train=2048, validation=512, generator=generator(1), teacher=generator(0))
        adam = {"loss": "mse", "optimizer": "adam", "rate": 1e-3}
        for name, network in (("attention", attention_regressor()), ("position-wise", positionwise_mlp())):
            report(f"exp5 {name}", ours(network, data.train, data.validation, **adam))
    print(f"peak memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB (opponents included)")


if __name__ == "__main__":
    main()
