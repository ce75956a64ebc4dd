"""Compare the flatness of two optimisers with a paired test.

Both train the same initial network on the same data, at each of eight seeds, so the test is paired
(Wilcoxon's signed ranks, two-sided, exact). Eight pairs can reach p = 0.008; five cannot reach
0.05.
"""

import matplotlib.pyplot as plt
import torch
from scipy.stats import wilcoxon
from torch import nn

from runner.curvature import ParameterOperator, top_eigenpairs

SEEDS = range(8)


def sharpness(optimiser: type[torch.optim.Optimizer], rate: float, seed: int) -> float:
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 3))
    x = torch.randn(96, 6)
    y = (x[:, :3] + 0.3 * torch.randn(96, 3)).argmax(1)
    loss = nn.CrossEntropyLoss()
    optimise = optimiser(net.parameters(), lr=rate)
    for _ in range(200):
        optimise.zero_grad()
        loss(net(x), y).backward()
        optimise.step()
    hessian = ParameterOperator(net.eval(), loss, [(x, y)])
    return float(top_eigenpairs(hessian, 1).values[0])


sgd = [sharpness(torch.optim.SGD, 0.5, seed) for seed in SEEDS]
adam = [sharpness(torch.optim.Adam, 0.01, seed) for seed in SEEDS]
test = wilcoxon(sgd, adam)
print(f"largest eigenvalue: SGD {sum(sgd) / 8:.3f}, Adam {sum(adam) / 8:.3f}")
print(f"{sum(a > b for a, b in zip(sgd, adam, strict=True))} of 8 pairs larger for SGD")
print(f"Wilcoxon p = {test.pvalue:.3f}")

plt.plot([0, 1], [sgd, adam], color="grey", marker="o")
plt.xticks([0, 1], ["SGD", "Adam"])
plt.ylabel("largest Hessian eigenvalue")
plt.savefig("recipe.png", dpi=100, bbox_inches="tight")
