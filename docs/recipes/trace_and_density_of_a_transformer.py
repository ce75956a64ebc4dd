"""Trace and spectral density of a Hugging Face model.

The model returns its own loss, so `loss` is None and `output` names it. The batches are
dictionaries, as a Hugging Face data loader gives them.
"""

# needs: transformers
import matplotlib.pyplot as plt
import torch
from transformers import BertConfig, BertForSequenceClassification

from runner.curvature import ParameterOperator, spectral_density, trace_estimate

torch.manual_seed(0)
config = BertConfig(
    vocab_size=50,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=32,
    num_labels=3,
)
model = BertForSequenceClassification(config).eval()
batches = [
    {"input_ids": torch.randint(50, (8, 12)), "labels": torch.randint(3, (8,))} for _ in range(2)
]

hessian = ParameterOperator(model, None, batches, output="loss")
generator = torch.Generator().manual_seed(0)
trace = trace_estimate(hessian, generator=generator)
print(f"{hessian.shape[0]} parameters, trace {trace.value:.2f} ± {trace.error:.2f}")
density = spectral_density(hessian, generator=generator)
print(f"eigenvalues from {density.grid.min():.3f} to {density.grid.max():.3f}")

density.plot()
plt.savefig("recipe.png", dpi=100, bbox_inches="tight")
