"""A transformer of two layers that reads characters.

hess-run diagnose target=docs/examples/characters.py:transformer nodes='embed,layers.layers.*,head'
"""

import torch
from torch import nn

TEXT = (
    "the curvature of a loss is the sum of what each layer says to itself and of what the layers "
    "say to one another. "
)


class Characters(nn.Module):
    def __init__(self, letters: int, width: int = 16, length: int = 8) -> None:
        super().__init__()
        self.embed, self.place = (
            nn.Embedding(letters, width),
            nn.Parameter(0.1 * torch.randn(length, width)),
        )
        layer = nn.TransformerEncoderLayer(
            width, 2, 32, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.layers, self.head = (
            nn.TransformerEncoder(layer, 2, enable_nested_tensor=False),
            nn.Linear(width, letters),
        )
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(length))

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        return self.head(
            self.layers(self.embed(text) + self.place, self.mask, is_causal=True)
        ).transpose(1, 2)


def transformer():
    letters = sorted(set(TEXT))
    code = torch.tensor([letters.index(c) for c in TEXT])
    rows = code[: len(code) // 9 * 9].view(-1, 9)
    return Characters(len(letters)).eval(), nn.CrossEntropyLoss(), (rows[:, :-1], rows[:, 1:])
