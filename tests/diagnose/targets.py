"""What the tests diagnose."""

import torch
from torch import nn


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)).double().eval()


def data(rows: int = 6) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(rows, 4, generator=generator, dtype=torch.float64), torch.arange(rows) % 3


def batch():
    return network(), nn.CrossEntropyLoss(), data()


def loader():
    x, y = data(40)
    return network(), nn.CrossEntropyLoss(), list(zip(x.split(8), y.split(8), strict=True))


def training():
    module, (x, y) = network(), data()
    for step in range(3):
        yield step, module, nn.CrossEntropyLoss(), (x, y)
        with torch.no_grad():
            for p in module.parameters():
                p.mul_(1.1)


def in_training_mode():
    return nn.Sequential(nn.Linear(4, 5), nn.Dropout(0.5), nn.Linear(5, 3)).double(), "cross_entropy", data()


def no_module():
    return "net", nn.CrossEntropyLoss(), data()


def two_things():
    return network(), nn.CrossEntropyLoss()


def wrong_loss():
    return network(), nn.BCELoss(), data()


def fails():
    raise KeyError("no such file")


class NoGraph(nn.Module):
    """No second derivative: layers cannot be measured, the rest can."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 5), nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.first(x)
        return self.second(h - h.mean(0))


def no_graph():
    torch.manual_seed(0)
    return NoGraph().double().eval(), nn.CrossEntropyLoss(), data()


three = 3


def masked():
    """Positional and keyword inputs together, and a structured output."""
    from tests.curvature.module_cases import make_module

    case = make_module("multihead attention")
    return case.module, case.loss, case.batch
