"""R, C and D between the blocks of a residual network.

The Hessian block H[v, w] belongs to the outputs of two layers, which names or patterns of
submodules choose. R is its Frobenius norm, C the coupling, D the stable rank.
"""

import matplotlib.pyplot as plt
import torch
from torch import nn

from runner.curvature import LayerOperator, inter_layer_metrics


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1), nn.SiLU(), nn.Conv2d(width, width, 3, padding=1)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.inner(x)


torch.manual_seed(0)
net = nn.Sequential(
    nn.Conv2d(3, 4, 3, padding=1),
    *(Block(4) for _ in range(4)),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(4, 5),
).eval()
x, y = torch.randn(16, 3, 6, 6), torch.randint(5, (16,))

layers = LayerOperator(net, nn.CrossEntropyLoss(), [(x, y)], layers=["1", "2", "3", "4"])
metrics = inter_layer_metrics(layers)
for (v, w), pair in metrics.items():
    print(f"{v} {w}  R {pair.R.value:.2e}  C {pair.C.value:.3f} ± {pair.C.error:.3f}")

first = [metrics["1", w].C.value for w in ("1", "2", "3", "4")]
plt.plot(range(4), first, marker="o")
plt.xlabel("distance from the first block")
plt.ylabel("coupling C")
plt.savefig("recipe.png", dpi=100, bbox_inches="tight")
