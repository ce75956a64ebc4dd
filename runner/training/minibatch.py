"""Minibatch training in memory (DAG, Sections 5 and N): SGD or Adam, cosine schedule, clipping,
checkpoints, resume.

A training is a function of its arguments: the data order and the augmentation come from generators
that the caller names, and nothing else is random. A training that was killed goes on from the last
saved epoch and ends in the same bits as one that was not.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from runner.contract import Checkpoints
from runner.data.images import Split
from runner.kinds.training import MinibatchTraining
from runner.models.network import Network
from runner.training import CHECKPOINTS
from runner.training.allocator import keep_freed_memory
from runner.training.backprop import gradient_function, loss_value
from runner.training.order import Order, StreamAugment, StreamOrder

State = dict[str, Tensor]
Augment = Callable[[Tensor], Tensor]


@dataclass
class Training:
    """What a training left behind.

    status: "ok", or "diverged in epoch k" (then "final" is missing). states: parameters and buffers
    at "init", "mid" (after E//2 epochs) and "final". history: columns epoch (0: before training),
    rate, train_loss (mean over the epoch's batches as they came), test_loss, test_accuracy (NaN for
    regression). seconds: spent in all epochs, over all attempts; not part of the history, which is
    the same in every run. devices: what it ran on.
    """

    status: str = "ok"
    states: dict[str, State] = field(default_factory=dict)
    history: dict[str, list[float]] = field(default_factory=dict)
    seconds: float = 0.0
    devices: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Plain values and tensors, for a checkpoint; Training(**…) is the inverse."""
        history = {name: list(column) for name, column in self.history.items()}
        copies = {"states": dict(self.states), "history": history, "devices": list(self.devices)}
        return {**vars(self), **copies}

    def load_into(self, network: Network, checkpoint: str) -> Network:
        """`network` in evaluation mode with the parameters of a checkpoint. Raises ValueError for
        one not reached."""
        if checkpoint not in self.states:
            raise ValueError(
                f"checkpoint: expected one of {', '.join(self.states)}, found {checkpoint!r} "
                f"(training: {self.status})"
            )
        network.load_state_dict(self.states[checkpoint])
        return network.eval()


def train(
    network: Network,
    train_split: Split,
    test_split: Split,
    settings: MinibatchTraining,
    *,
    order: torch.Generator | Order,
    loss: str = "cross_entropy",
    augment: torch.Generator | Augment | None = None,
    checkpoints: Checkpoints | None = None,
    save_every: int = 5,
    progress: Callable[..., None] | None = None,
    until: str = "final",
) -> Training:
    """Train `network` in place and return its checkpoints and history.

    settings: the gradient is scaled to at most the norm `clip`; the schedule "cosine" sets the rate
    of epoch e = 0 … E-1 to rate (1 + cos(π e/E))/2. order: permutes the training examples, once per
    epoch (a generator: by torch.randperm from it); the last batch is kept even if smaller. augment:
    random crops (padding 4) and flips drawn from this generator, for images that are not flat; or a
    function of the pixels that keeps no state but that of `order`.
    checkpoints: the training is saved every `save_every` epochs and continued from there; a
    finished one is loaded. progress(done, total, note) is called once per epoch. A loss that is not
    finite ends the training, as a status. until: the checkpoint at which training stops for now; a
    later call with the same `checkpoints` continues there.
    """
    if until not in CHECKPOINTS:
        raise ValueError(f"until: expected one of {', '.join(CHECKPOINTS)}, found {until!r}")
    finished = checkpoints.load("result") if checkpoints else None
    if finished is not None:
        return Training(**finished)
    keep_freed_memory()
    device = next(network.parameters()).device
    train_split = train_split.to(device)
    test_split = test_split.to(device)
    parameters = flatten_parameters(network)
    gradient = gradient_function(network, loss)
    run = _Run(network, _optimizer(settings, parameters), order, augment)
    epochs = settings.epochs
    if checkpoints and (saved := checkpoints.load("resume")) is not None:
        run.restore(saved)
    else:
        run.reached(epochs)
        run.record(0.0, math.nan, evaluate(network, test_split, loss))
    here = describe(device)
    while until not in run.training.states and run.training.status == "ok":
        started = time.perf_counter()
        if here not in run.training.devices:
            run.training.devices.append(here)
        step_rate = _rate(settings, run.epoch / epochs)
        run.optimizer.param_groups[0]["lr"] = step_rate
        mean_loss = _epoch(run, train_split, parameters, gradient, settings)
        run.epoch += 1
        scores = evaluate(network, test_split, loss)
        run.record(step_rate, mean_loss, scores)
        run.training.seconds += time.perf_counter() - started
        _finish(run, epochs, mean_loss, parameters)
        if progress:
            progress(run.epoch, epochs, f"loss {mean_loss:.3f}, accuracy {scores[1]:.3f}")
        stops = until in run.training.states or run.epoch % save_every == 0
        if checkpoints and stops and run.epoch < epochs:
            checkpoints.save("resume", run.state())
    if checkpoints and (run.epoch == epochs or run.training.status != "ok"):
        checkpoints.save("result", run.training.as_dict())
    return run.training


def describe(device: torch.device) -> str:
    """The device's model, and whether its convolutions are computed in TF32, as they are by torch's
    default."""
    if device.type != "cuda":
        return device.type
    convolutions: Any = vars(torch.backends)["cudnn"].conv
    name = torch.cuda.get_device_name(device)
    return f"{name}, TF32" if convolutions.fp32_precision == "tf32" else name


def _rate(settings: MinibatchTraining, done: float) -> float:
    """The rate of an epoch, when the share `done` of all epochs is over."""
    if settings.schedule == "cosine":
        return settings.rate * (1 + math.cos(math.pi * done)) / 2
    return settings.rate


def _finish(run: _Run, epochs: int, mean_loss: float, parameters: nn.Parameter) -> None:
    """After an epoch: keep the parameters where a checkpoint is due, or end a training that is not
    finite."""
    if math.isfinite(mean_loss) and bool(torch.isfinite(parameters.detach()).all()):
        run.reached(epochs)
    else:
        run.training.status = f"diverged in epoch {run.epoch}"


@torch.inference_mode()
def evaluate(network: Network, split: Split, loss: str, batch: int = 500) -> tuple[float, float]:
    """Mean loss and accuracy (NaN for regression) in evaluation mode; the mode is put back."""
    was_training = network.training
    network.eval()
    total = 0.0
    right = 0
    read = split.reader(batch)
    for index in torch.arange(len(split), device=split.inputs.device).split(batch):
        x, y = read(index, None)
        output = network(x)
        total += float(loss_value(loss, output, y)) * len(y)
        if loss == "cross_entropy":
            right += int((output.argmax(1) == y).sum())
    network.train(was_training)
    accuracy = math.nan
    if loss == "cross_entropy":
        accuracy = right / len(split)
    return total / len(split), accuracy


def flatten_parameters(network: nn.Module) -> nn.Parameter:
    """One vector of all parameters; the network's own parameters and gradients become views of it
    and of its `.grad`.

    Clipping and the optimiser then are a few kernels on one vector, not several per tensor.
    """
    parameters = [_in_order(p.detach()).reshape(-1) for p in network.parameters()]
    vector = nn.Parameter(torch.cat(parameters))
    vector.grad = torch.zeros_like(vector)
    values = _parts(vector.data, network)
    gradients = _parts(vector.grad, network)
    for (value, p), (grad, _) in zip(values, gradients, strict=True):
        shape = _in_order(p).shape
        p.data = _back(value.view(shape))
        p.grad = _back(grad.view(shape))
    return vector


def _in_order(p: Tensor) -> Tensor:
    """Weights of a convolution on a processor with channels last, as its kernels want them; others
    as they are."""
    if p.dim() == 4 and p.device.type == "cpu":
        return p.permute(0, 2, 3, 1)
    return p


def _back(p: Tensor) -> Tensor:
    if p.dim() == 4 and p.device.type == "cpu":
        return p.permute(0, 3, 1, 2)
    return p


def plain_order(vector: Tensor, network: nn.Module) -> Tensor:
    """A vector in the order of `flatten_parameters` in the parameters' own order, which no device
    changes."""
    return torch.cat(
        [_back(v.view(_in_order(p).shape)).reshape(-1) for v, p in _parts(vector, network)]
    )


def flat_order(vector: Tensor, network: nn.Module) -> Tensor:
    """The inverse of `plain_order`, on the device of the network."""
    parts = _parts(vector.to(next(network.parameters()).device), network)
    return torch.cat([_in_order(v.view(p.shape)).reshape(-1) for v, p in parts])


def _parts(vector: Tensor, network: nn.Module) -> Iterator[tuple[Tensor, Tensor]]:
    """The part of the vector that belongs to each parameter, with the parameter."""
    parameters = list(network.parameters())
    return zip(vector.split([p.numel() for p in parameters]), parameters, strict=True)


def _optimizer(settings: MinibatchTraining, vector: nn.Parameter) -> torch.optim.Optimizer:
    rate = settings.rate
    decay = settings.weight_decay
    if settings.optimizer == "sgd":
        return torch.optim.SGD([vector], rate, settings.momentum, weight_decay=decay, fused=True)
    return torch.optim.Adam([vector], rate, weight_decay=decay, fused=True)


def _epoch(
    run: _Run,
    split: Split,
    vector: nn.Parameter,
    gradient: Callable[[Tensor, Tensor], Tensor],
    settings: MinibatchTraining,
) -> float:
    """One pass over the split; mean loss per example."""
    run.network.train()
    device = split.inputs.device
    permutation = run.order.permutation(len(split)).to(device)
    total = torch.zeros((), device=device)
    assert vector.grad is not None
    read = split.reader(settings.batch)
    transform = run.augment
    if isinstance(transform, torch.Generator):
        transform = StreamAugment(transform)
    for index in permutation.split(settings.batch):
        total += gradient(*read(index, transform)) * len(index)
        scale = (settings.clip / (torch.linalg.vector_norm(vector.grad) + 1e-6)).clamp_(max=1.0)
        # times one changes no bit, and is a pass over all gradients
        if device.type != "cpu" or float(scale) != 1:
            vector.grad.mul_(scale)
        run.optimizer.step()
    return float(total) / len(split)


class _Run:
    """A training under way: everything that the next epoch depends on."""

    def __init__(
        self,
        network: Network,
        optimizer: torch.optim.Optimizer,
        order: torch.Generator | Order,
        augment: torch.Generator | Augment | None,
    ) -> None:
        self.network = network
        self.optimizer = optimizer
        self.augment = augment
        self.order: Order = StreamOrder(order) if isinstance(order, torch.Generator) else order
        self.epoch = 0
        self.training = Training()

    def reached(self, epochs: int) -> None:
        """Keep the parameters where a checkpoint is due."""
        due = {"init": 0, "mid": epochs // 2, "final": epochs}
        for name in CHECKPOINTS:
            if due[name] == self.epoch:
                self.training.states[name] = self._parameters()

    def record(self, rate: float, train_loss: float, scores: tuple[float, float]) -> None:
        """One row of the history."""
        row = {"epoch": self.epoch, "rate": rate, "train_loss": train_loss}
        row |= {"test_loss": scores[0], "test_accuracy": scores[1]}
        for name, value in row.items():
            self.training.history.setdefault(name, []).append(value)

    def state(self) -> dict[str, Any]:
        """All of it as tensors and plain values."""
        augment = None
        if isinstance(self.augment, torch.Generator):
            augment = self.augment.get_state()
        return {
            "epoch": self.epoch,
            "network": self._parameters(),
            "optimizer": self._optimizer_state(self.optimizer.state_dict(), plain_order),
            "order": self.order.get_state(),
            "augment": augment,
            "training": self.training.as_dict(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from state()."""
        self.epoch = state["epoch"]
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(self._optimizer_state(state["optimizer"], flat_order))
        self.order.set_state(state["order"])
        if isinstance(self.augment, torch.Generator):
            self.augment.set_state(state["augment"])
        self.training = Training(**state["training"])

    def _optimizer_state(
        self, state: dict[str, Any], order: Callable[[Tensor, nn.Module], Tensor]
    ) -> dict[str, Any]:
        """The optimizer's state with its vectors over all parameters in another order: on disk in
        the plain one."""

        vectors = {}
        for key, values in state["state"].items():
            vectors[key] = dict(values)
            for name, value in values.items():
                if isinstance(value, Tensor) and value.dim() == 1:
                    vectors[key][name] = order(value, self.network)
        return {**state, "state": vectors}

    def _parameters(self) -> State:
        state = self.network.state_dict()
        return {name: value.detach().to("cpu", copy=True) for name, value in state.items()}
