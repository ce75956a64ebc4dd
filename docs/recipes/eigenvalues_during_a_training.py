"""Eigenvalues every 100 steps of a training.

The monitor measures on a fixed batch and leaves no trace in the training.
"""

import matplotlib.pyplot as plt
import torch
from torch import nn

from runner.curvature import monitor

torch.manual_seed(0)
x = torch.randn(256, 10)
y = (x[:, :3] + 0.5 * torch.randn(256, 3)).argmax(1)
net = nn.Sequential(nn.Linear(10, 32), nn.Tanh(), nn.Linear(32, 3))
loss = nn.CrossEntropyLoss()
optimiser = torch.optim.SGD(net.parameters(), lr=0.5)

watch = monitor(net, loss, [(x[:128], y[:128])], every=100, eigenvalues=2)
for step in range(501):
    watch(step)
    batch = torch.randint(256, (32,))
    optimiser.zero_grad()
    loss(net(x[batch]), y[batch]).backward()
    optimiser.step()

rows = watch.to_frame()
print(rows[["lambda_1", "lambda_2"]].round(3).to_string())

plt.plot(rows.index, rows["lambda_1"], marker="o", label="largest")
plt.plot(rows.index, rows["lambda_2"], marker="s", label="second")
plt.xlabel("training step")
plt.ylabel("Hessian eigenvalue")
plt.legend()
plt.savefig("recipe.png", dpi=100, bbox_inches="tight")
