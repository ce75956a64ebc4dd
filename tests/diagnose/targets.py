"""What the tests diagnose."""

import sys
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn

from tests.draws import normal, tanh_net

LOSS = nn.CrossEntropyLoss()


NET = tanh_net(4, 3, 2)


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return tanh_net(4, 5, 4, 3).double().eval()


def data(rows: int = 6) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return normal(rows, 4, generator=generator), torch.arange(rows) % 3


def of(loss=LOSS, change=lambda x, y: (x, y), module=network):
    """A target: a module, its loss and the data, changed."""
    return lambda: (module(), loss, change(*data()))


def seeded(kind: type[nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return kind().double().eval()


def loader():
    x, y = data(24)
    return network(), nn.CrossEntropyLoss(), list(zip(x.split(8), y.split(8), strict=True))


def training():
    module, (x, y) = network(), data()
    for step in range(3):
        yield step, module, nn.CrossEntropyLoss(), (x, y)
        with torch.no_grad():
            for p in module.parameters():
                p.mul_(1.1)


def breaks_off():
    """A training whose third step fails."""
    for step, *rest in training():
        if step == 2:
            raise RuntimeError("the disk is full")
        yield step, *rest


def two_things():
    return network(), nn.CrossEntropyLoss()


def fails():
    raise KeyError("no such file")


class WithoutLayers(nn.Module):
    """Parameters of its own, and no submodule."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x) @ self.weight


class WithLoss(nn.Module):
    """As Hugging Face's: keyword arguments, and its loss next to the logits."""

    def __init__(self) -> None:
        super().__init__()
        self.net = network()

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.net(x)
        return {"logits": logits, "loss": LOSS(logits, labels)}


def own_loss():
    batches = loader()[2]
    return WithLoss().double(), None, [{"x": x, "labels": y} for x, y in batches]


class TimeFirst(nn.Module):
    """An LSTM with batch_first=False; a mask over the time steps belongs to no example."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(2, 3), nn.Linear(3, 2)

    def forward(self, t: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.head((self.lstm(t)[0] * mask).sum(0))


def time_first_masked():
    torch.manual_seed(0)
    mask = torch.tensor([1.0, 0.5, 0.25], dtype=torch.float64).reshape(3, 1, 1)
    inputs = {"t": torch.randn(3, 4, 2).double(), "mask": mask}
    return TimeFirst().double().eval(), nn.CrossEntropyLoss(), (inputs, torch.arange(4) % 2)


def twice():
    for _ in range(2):
        yield 3, network(), nn.CrossEntropyLoss(), data()


def drawing():
    """A training whose second step draws from the global generator."""
    module = network()
    yield 0, module, nn.CrossEntropyLoss(), data()
    with torch.no_grad():
        module[0].weight.add_(torch.randn_like(module[0].weight))
    yield 1, module, nn.CrossEntropyLoss(), data()


def breaks_later():
    yield 0, network(), nn.CrossEntropyLoss(), data()
    yield 1, network(), nn.BCELoss(), data()


def in_a_group():
    dist.init_process_group("gloo")
    assert dist.get_world_size() == 1
    return batch()


batch = of()
without_layers = of(module=lambda: seeded(WithoutLayers))
in_training_mode = of(
    module=lambda: nn.Sequential(nn.Linear(4, 5), nn.Dropout(0.5), nn.Linear(5, 3)).double()
)
no_module = of(module=lambda: "net")
frozen = of(module=lambda: network().requires_grad_(False))
empty_batch = of(change=lambda x, y: (x[:0], y[:0]))
empty_loader = of(change=lambda x, y: [])
not_finite = of(change=lambda x, y: (x * torch.nan, y))
of_dicts = of(change=lambda x, y: [{"x": x, "y": y}])
of_three = of(change=lambda x, y: [(x, y, torch.ones(len(x)))])
wrong_loss = of(nn.BCELoss())
random_loss = of(lambda o, t: LOSS(o, t) * torch.rand(()))
class_of_loss = of(nn.CrossEntropyLoss)
number_of_loss = of(lambda o, t: LOSS(o, t).item())
perceptron = tanh_net(4, 3, 1).double()
flat_regression = of(
    nn.MSELoss(), lambda x, y: (x, x[:, 0]), lambda: perceptron
)  # torch broadcasts to (B, B)
three = 3


summed_batches = of(
    nn.CrossEntropyLoss(reduction="sum"), lambda x, y: [(x[:3], y[:3]), (x[3:], y[3:])]
)


def penalised():
    module = network()

    def loss(f, y):
        return LOSS(f, y) + 0.1 * sum(p.square().sum() for p in module.parameters())

    return module, loss, data()


@dataclass
class Result:
    """What a language model returns."""

    loss: torch.Tensor | None
    logits: torch.Tensor
    hidden: tuple[torch.Tensor, ...] = ()


class Returns(nn.Module):
    """A network that returns an object."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(3, 4), nn.Linear(4, 3)

    def forward(self, x):
        h = torch.tanh(self.body(x))
        return Result(None, self.head(h), (h,))


def returns_an_object():
    torch.manual_seed(0)
    return Returns().eval(), nn.CrossEntropyLoss(), (torch.randn(6, 3), torch.arange(6) % 3)


def takes_an_argument(size):
    return size


def exits_later():
    yield 0, network(), LOSS, data()
    sys.exit(3)
