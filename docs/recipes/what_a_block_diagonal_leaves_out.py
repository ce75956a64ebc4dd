"""How much curvature a block-diagonal method leaves out.

K-FAC and similar optimisers keep the Hessian or Gauss-Newton blocks of single layers. Φ = 1 − Σ
‖H_vv‖² / ‖H‖² is the share of ‖H‖² in the blocks between layers, which they discard.
"""

import torch
from torch import nn

from runner.curvature import ParameterOperator, inter_layer_metrics

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(10, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4)).eval()
data = [(torch.randn(64, 10), torch.randint(4, (64,)))]
hessian = ParameterOperator(net, nn.CrossEntropyLoss(), data)
blocks = inter_layer_metrics(hessian, ranks=False)
for part, phi in (("hessian", blocks.phi), ("gauss_newton", blocks.phi_gauss_newton)):
    print(f"{part:13} Φ = {phi.value:.3f} ± {phi.error:.3f}")
