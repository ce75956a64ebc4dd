"""A small causal transformer over characters, trained in the cell: a target whose attention has learned something.

x_i = E[c_i] + P[i]; two heads of low rank under a causal mask, their outputs side by side through W_O; residual; a
position-wise network; residual; logits. The text below was written for this purpose.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from runner.curvature.closed_form.attention.heads import Heads

TEXT = (
    "the miller counted his sacks by the light of the door, and when the rain began he counted them again. "
    "nobody came down the road that evening, and nobody had come the evening before. the wheel turned slowly, "
    "the water went under it and away, and the cat slept on the warm stones near the oven. in the morning a "
    "girl brought two letters, one for the miller and one for the cat, and the miller read both of them aloud."
)
ALPHABET = "".join(sorted(set(TEXT)))


class CharacterModel(nn.Module):
    """Embedding, learned positions, one causal attention layer, one position-wise network. (batch, n) -> logits."""

    def __init__(self, tokens: int, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.embedding = nn.Embedding(len(ALPHABET), width)
        self.position = nn.Parameter(torch.randn(tokens, width))
        self.query, self.key, self.value, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.inner = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.logits = nn.Linear(width, len(ALPHABET))

    def embed(self, codes: Tensor) -> Tensor:
        """What the attention layer receives: (batch, n, d)."""
        return self.embedding(codes) + self.position

    def forward(self, codes: Tensor) -> Tensor:
        x = self.embed(codes)

        def split(part: nn.Linear) -> Tensor:
            return part(x).unflatten(-1, (self.heads, -1)).transpose(-2, -3)

        seen = nn.functional.scaled_dot_product_attention(
            split(self.query), split(self.key), split(self.value), is_causal=True
        )
        x = x + self.out(seen.transpose(-2, -3).flatten(-2))
        logits: Tensor = self.logits(x + self.inner(x))
        return logits

    def layer(self) -> Heads:
        """The attention layer in float64: W_h = K_h^T Q_h / sqrt(k) of rank k, V_h (d, k)."""
        rows = (
            part.weight.detach().double().unflatten(0, (self.heads, -1)) for part in (self.query, self.key, self.value)
        )
        query, key, value = rows  # each (H, k, d)
        return Heads(key.mT @ query / query.shape[1] ** 0.5, value.mT.contiguous(), causal=True)


@dataclass(frozen=True)
class Trained:
    """The model, its last training loss in nats per character, and the codes of the text."""

    model: CharacterModel
    loss: float
    codes: Tensor


def train_characters(
    tokens: int, width: int, heads: int, steps: int, rate: float, generator: torch.Generator
) -> Trained:
    """Next-character prediction on windows of TEXT by Adam, batches of 32; named stream for weights and windows."""
    codes = torch.tensor([ALPHABET.index(c) for c in TEXT])
    seed = int(torch.randint(2**31, (1,), generator=generator))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = CharacterModel(tokens, width, heads)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    loss = torch.zeros(())
    for _ in range(steps):
        at = torch.randint(len(codes) - tokens, (32,), generator=generator)
        batch = torch.stack([codes[i : i + tokens + 1] for i in at.tolist()])
        loss = nn.functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return Trained(model, float(loss.detach()), codes)
