"""The ten largest Hessian eigenvalues, with a DataLoader.

The loader must give the same batches every time it is read: no shuffling, no random augmentation. A
batch weighs its number of examples.
"""

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from runner.curvature import ParameterOperator, top_eigenpairs

torch.manual_seed(0)
digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
labels = torch.tensor(digits.target)
loader = DataLoader(TensorDataset(images[:500], labels[:500]), batch_size=128)

net = nn.Sequential(
    nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(72, 10)
).eval()
hessian = ParameterOperator(net, nn.CrossEntropyLoss(), loader)
found = top_eigenpairs(hessian, 10)
for value, residual in zip(found.values, found.residuals, strict=True):
    print(f"{value:8.4f}  residual {residual:.0e}")

plt.bar(range(1, 11), found.values)
plt.xlabel("index")
plt.ylabel("Hessian eigenvalue")
plt.savefig("recipe.png", dpi=100, bbox_inches="tight")
