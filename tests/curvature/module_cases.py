"""Modules as users write them, and the dense float64 oracle: perturbations added by forward
hooks."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.utils.parametrizations import weight_norm
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten
from torch.utils.checkpoint import checkpoint

from tests.curvature.cases import Own
from tests.curvature.oracles import arguments, hessian_blocks
from tests.draws import normal


class BasicBlock(nn.Module):
    """A residual block in the usual style: ReLU in place, the shortcut added in place."""

    def __init__(self, inputs, outputs, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(outputs))

    def forward(self, x):
        identity = x
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return self.relu(out)


class ResNet(nn.Module):
    """ResNet-18's plan, with few channels and three stages."""

    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(1, 2, 3, 1, 1, bias=False), nn.BatchNorm2d(2)
        self.relu = nn.ReLU(inplace=True)
        self.layer1 = nn.Sequential(BasicBlock(2, 2), BasicBlock(2, 2))
        self.layer2 = nn.Sequential(BasicBlock(2, 3, 2), BasicBlock(3, 3))
        self.layer3 = nn.Sequential(BasicBlock(3, 4, 2), BasicBlock(4, 4))
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(4, 3)

    def forward(self, x):
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.fc(torch.flatten(self.avgpool(x), 1))


class PreNorm(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)), with nn.MultiheadAttention and a padding
    mask."""

    def __init__(self, width=4):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = nn.MultiheadAttention(width, 2, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 5), nn.GELU(), nn.Linear(5, width))

    def forward(self, x, mask=None):
        h = self.norm1(x)
        x = x + self.attn(h, h, h, key_padding_mask=mask, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(2, 4)
        self.blocks = nn.ModuleList([PreNorm(), PreNorm()])
        self.head = nn.Linear(4, 3)

    def forward(self, x, mask=None, scale=1.0):
        h = self.embed(x) * scale
        for block in self.blocks:
            h = block(h, mask=mask)
        return {"hidden": h, "logits": self.head(h.mean(1))}


class CausalAttention(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        q, k, v = (t.unflatten(2, (2, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(mixed.transpose(1, 2).flatten(2))


class LanguageModel(nn.Module):
    """Tied embedding, causal attention, and logits of all tokens; flat: as (B * S, vocabulary)."""

    def __init__(self, flat=False, vocabulary=5, width=4, length=3):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = CausalAttention(width)
        self.mlp = nn.Sequential(nn.Linear(width, 6), nn.SiLU(), nn.Linear(6, width))
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.wte.weight
        self.flat = flat

    def forward(self, tokens):
        h = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        h = h + self.attn(self.ln1(h))
        logits = self.head(h + self.mlp(self.ln2(h)))
        return logits.flatten(0, 1) if self.flat else logits


def last_states(m, x):
    sequence, (hidden, _) = m.lstm(torch.tanh(m.embed(x)))
    last = sequence[:, -1] if m.lstm.batch_first else sequence[-1]
    return m.head(last * hidden[-1])


def recurrent(batch_first=True):
    lstm = nn.LSTM(3, 3, batch_first=batch_first)
    return Own(last_states, embed=nn.Linear(2, 3), lstm=lstm, head=nn.Linear(3, 2))


class Mixture(nn.Module):
    """Two experts; each example goes to the one that the gate prefers, times its weight."""

    def __init__(self):
        super().__init__()
        self.stem, self.gate = nn.Linear(3, 4), nn.Linear(4, 2)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(2))
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        h = torch.tanh(self.stem(x))
        weights = torch.softmax(self.gate(h), 1)
        choice = weights.argmax(1)
        out = torch.zeros_like(h)
        for k, expert in enumerate(self.experts):
            rows = (choice == k).nonzero().squeeze(1)
            out = out.index_add(0, rows, expert(h[rows]) * weights[rows, k : k + 1])
        return self.head(out + h)


def reused():
    """One activation and one layer used three times, and a long skip."""

    def run(m, x):
        h = start = m.act(m.embed(x))
        for _ in range(2):
            h = m.act(m.layer(h))
        return m.head(h * start).squeeze(-1)

    parts = {"embed": nn.Linear(3, 4), "layer": nn.Linear(4, 4), "head": nn.Linear(4, 2)}
    return Own(run, **parts, act=nn.Tanh())


class Checkpointed(nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 4), nn.SiLU(), nn.Linear(4, 4))
        self.head, self.reentrant = nn.Linear(4, 2), reentrant

    def forward(self, x):
        if self.reentrant is None:
            return self.head(self.body(x))
        return self.head(checkpoint(self.body, x, use_reentrant=self.reentrant))


@dataclass(frozen=True)
class ModuleCase:
    module: nn.Module
    given: Any
    target: Any
    loss: Any
    nodes: Any = None
    options: dict[str, Any] = field(default_factory=dict)
    dims: dict[str, int] = field(default_factory=dict)
    """Dimension of the examples in a node's output, where it is not the first."""
    leaves: dict[str, int] = field(default_factory=dict)
    """Which tensor of a node's output is measured, where it is not the first."""
    oracle: nn.Module | None = None
    """The same network for the oracle, where forward hooks do not reach into the module itself."""

    @property
    def examples(self):
        """Number of examples: of the input, since a target may have several rows for each."""
        first = next(t for t in tree_leaves(self.given) if isinstance(t, Tensor))
        return first.shape[self.options.get("batch_dim", 0)]

    @property
    def batch(self):
        return self.given, self.target

    @property
    def problem(self):
        """What an operator is built of."""
        return self.module, self.loss, self.batch


def tokens_loss(logits, target):
    return F.cross_entropy(logits.flatten(0, -2), target.flatten())


def logits_loss(output, target):
    return F.cross_entropy(output["logits"], target)


def ready(module):
    """In float64 and evaluation mode, with running statistics and norms of no particular values."""
    for m in module.modules():
        if isinstance(m, nn.BatchNorm2d):
            m.running_mean.normal_()
            m.running_var.uniform_(0.5, 2)
        if isinstance(m, nn.BatchNorm2d | nn.LayerNorm):
            nn.init.uniform_(m.weight, 0.5, 1.5)
    return module.double().eval()


CROSS_ENTROPY = nn.CrossEntropyLoss()


def case(module, given, target, loss=CROSS_ENTROPY, nodes=None, **more):
    """Of a module that is made ready."""
    return ModuleCase(ready(module), given, target, loss, nodes, **more)


def classes(n, k=3):
    return torch.arange(n) % k


def x(*shape):
    return normal(*shape)


def mlp():
    layers = [nn.Linear(4, 5), nn.LayerNorm(5), nn.SiLU(), nn.Linear(5, 4), nn.Tanh()]
    return ready(nn.Sequential(*layers, nn.Linear(4, 3)))


def convnet():
    first, second = nn.Conv2d(1, 2, 3), nn.Conv2d(2, 2, 2)
    layers = [first, nn.BatchNorm2d(2), nn.SiLU(), second, nn.BatchNorm2d(2), nn.SiLU()]
    module = nn.Sequential(*layers, nn.Flatten(), nn.Linear(8, 3))
    return case(module, x(2, 1, 5, 5), classes(2), nodes=["0", "2", "5"])


def lstm_sequence_first():
    dims = {"embed": 1, "lstm": 1}
    about = {"options": {"batch_dim": 1}, "dims": dims}
    return case(recurrent(False), x(2, 3, 2), classes(3, 2), **about)


def hidden_state():
    nodes, place = {"embed": None, "lstm": "1.0"}, {"lstm": 1}
    about = {"dims": place, "leaves": place}
    return case(recurrent(), x(3, 2, 2), classes(3, 2), "cross_entropy", nodes, **about)


def transformer():
    kind = {"activation": "gelu", "batch_first": True, "norm_first": True}
    layer = nn.TransformerEncoderLayer(4, 2, 5, dropout=0.1, **kind)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    module = nn.Sequential(encoder, nn.Flatten(), nn.Linear(12, 3))
    nodes = ["0.layers.*", "0.layers.1.self_attn", "0.layers.*.linear1"]
    return case(module, x(2, 3, 4), classes(2), nn.CrossEntropyLoss(label_smoothing=0.1), nodes)


def mixture():
    """A mixture that sends some of its examples to each of the experts."""
    while True:
        found = case(Mixture(), x(5, 3), classes(5), nodes=["stem", "gate"])
        module = found.module
        chosen = module.gate(torch.tanh(module.stem(found.given))).argmax(1)
        if 0 < chosen.sum() < 5:
            return found


def checkpointed(reentrant):
    module, plain = Checkpointed(reentrant), ready(Checkpointed(None))
    plain.load_state_dict(module.state_dict())
    return case(module, x(3, 3), classes(3, 2), F.cross_entropy, ["body.*"], oracle=plain)


def resnet():
    nodes = ["conv1", "layer*.0", "layer1.1.bn2", "layer2.0.relu", "fc"]
    return case(ResNet(), x(2, 1, 4, 4), classes(2), nodes=nodes)


def mask_case():
    mask = torch.tensor([[False, False, True], [False, False, False]])
    given = ((x(2, 3, 2),), {"mask": mask, "scale": 0.7})
    nodes = ["embed", "blocks.*", "blocks.*.attn", "blocks.1.mlp.0", "blocks.0.norm2"]
    return case(Encoder(), given, classes(2), logits_loss, nodes)


def language_model(flat=False):
    target = classes(6, 4)
    target, loss = (target, CROSS_ENTROPY) if flat else (target.view(2, 3), tokens_loss)
    return case(LanguageModel(flat), classes(6, 5).view(2, 3), target, loss)


def two_inputs():
    """Two inputs with a mask per example, and one mask for all."""

    def forward(m, a, b, keep, mask):
        h = torch.tanh(m.left(a)) * keep.to(a.dtype)[:, None] + m.right(b).sin()
        return m.head((mask.to(a.dtype) @ h.unsqueeze(2)).squeeze(2)), None

    module = Own(forward, left=nn.Linear(3, 4), right=nn.Linear(2, 4), head=nn.Linear(4, 2))
    keep, mask = torch.tensor([True, False, True, True]), torch.ones(4, 4).tril()
    given = {"a": x(4, 3), "b": x(4, 2).float().double(), "keep": keep, "mask": mask}
    return case(module, given, classes(4, 2), options={"output": 0})


def tokens_and_features():
    """Tokens and features side by side; the sum of both is changed in place."""

    def forward(m, tokens, features):
        h = m.features(features)
        h += m.embed(tokens).mean(1)
        F.silu(h, inplace=True)
        return m.head(h)

    layers = {"embed": nn.Embedding(5, 4), "features": nn.Linear(2, 4), "head": nn.Linear(4, 2)}
    given = {"tokens": classes(6, 5).view(3, 2), "features": x(3, 2)}
    return case(Own(forward, **layers), given, classes(3, 2))


class Unusual(nn.Module):
    """What user code does: changes in place through views, parts without gradient, loops that
    values end."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = nn.Linear(3, 4), nn.Linear(4, 4), nn.Linear(4, 2)
        self.calls = 0

    def forward(self, t):
        self.calls += 1
        h = self.first(t)
        h.view(-1, 2, 2).mul_(1.5)
        h[:, 0] = (1.5 * h[:, 1]).sin()
        F.silu(h, inplace=True)
        with torch.no_grad():
            gate = torch.sigmoid(h)
        for _ in range(5):
            h = torch.tanh(self.second(h)) * gate
            if h.abs().max().item() < 0.3:
                break
        self.last = h
        return self.head(self.last)


def cells():
    """A recurrent cell called for each step, and a bidirectional layer over what it gives."""

    def forward(m, t):
        state, rows = None, []
        for k in range(t.shape[1]):
            state = m.cell(t[:, k], state)
            rows.append(state[0] * state[1])
        return m.head(m.layer(torch.stack(rows, 1))[0].mean(1))

    layer = nn.GRU(2, 2, bidirectional=True, batch_first=True)
    module = Own(forward, cell=nn.LSTMCell(2, 2), layer=layer, head=nn.Linear(4, 2))
    return case(module, x(2, 3, 2), classes(2))


def weight_normed():
    """Convolutions whose weights are computed from direction and length, with dilation and
    groups."""

    def forward(m, t):
        h = F.silu(m.first(t))
        return m.head((h + F.silu(m.second(h))).mean(2))

    first = weight_norm(nn.Conv1d(2, 4, 3, padding=2, dilation=2))
    second = weight_norm(nn.Conv1d(4, 4, 3, padding=1, groups=2))
    module = Own(forward, first=first, second=second, head=nn.Linear(4, 2))
    return case(module, x(3, 2, 5), classes(3, 2))


class UNet(nn.Module):
    """Down, up, and a skip by concatenation; GroupNorm and InstanceNorm; an output for each
    pixel."""

    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.SiLU())
        smaller = nn.Conv2d(4, 4, 3, stride=2, padding=1)
        self.deep = nn.Sequential(smaller, nn.InstanceNorm2d(4), nn.GELU())
        self.up = nn.ConvTranspose2d(4, 4, 2, stride=2)
        self.out = nn.Conv2d(8, 2, 1)

    def forward(self, t):
        skip = self.down(t)
        return self.out(torch.cat([skip, self.up(self.deep(skip))], 1))


def bag_of_words():
    """Bags of words: embeddings summed with weights of each word, beside a plain feature."""

    def forward(m, words, weights, features):
        return m.head(torch.tanh(m.mix(m.bag(words, per_sample_weights=weights), features)))

    bag = nn.EmbeddingBag(7, 3, mode="sum")
    module = Own(forward, bag=bag, mix=nn.Bilinear(3, 2, 4), head=nn.Linear(4, 2))
    words = torch.tensor([[0, 1, 6], [2, 2, 3], [4, 5, 0], [6, 1, 1]])
    given = {"words": words, "weights": torch.rand(4, 3, dtype=torch.float64), "features": x(4, 2)}
    return case(module, given, classes(4, 2))


MODULES = {
    "mlp": lambda: ModuleCase(mlp(), x(3, 4), classes(3), CROSS_ENTROPY, "*"),
    "convnet": convnet,
    "resnet": resnet,
    "multihead attention": mask_case,
    "language model": language_model,
    "flat language model": lambda: language_model(flat=True),
    "lstm": lambda: case(recurrent(), x(3, 2, 2), classes(3, 2)),
    "lstm sequence first": lstm_sequence_first,
    "lstm hidden state": hidden_state,
    "transformer encoder": transformer,
    "mixture": mixture,
    "reused": lambda: case(reused(), x(3, 3), x(3, 2), nn.MSELoss(), ["act", "layer", "head"]),
    "two inputs": two_inputs,
    "tokens and features": tokens_and_features,
    "unusual": lambda: case(Unusual(), x(1, 3), classes(1, 2)),
    "cells": cells,
    "checkpointed": lambda: checkpointed(False),
    "checkpointed reentrant": lambda: checkpointed(True),
    "compiled": lambda: ModuleCase(
        torch.compile(mlp(), backend="eager"), x(3, 4), classes(3), F.cross_entropy, "*"
    ),
    "weight norm": weight_normed,
    "unet": lambda: case(
        UNet(), x(2, 1, 4, 4), classes(32, 2).view(2, 4, 4), nodes=["down", "up", "out"]
    ),
    "embedding bag": bag_of_words,
}


def make_module(name):
    torch.manual_seed(0)
    return MODULES[name]()


class ShiftedLoss:
    """The loss of a case as a function of shifts e_v, which forward hooks add to the first tensor
    of each call's output."""

    def __init__(self, case, nodes):
        self.case, self.nodes, self.calls, self.shapes = case, nodes, {}, {}
        self.module = case.oracle or getattr(case.module, "_orig_mod", case.module)
        for node in nodes:
            name, _, number = node.partition("#")
            self.calls[name, int(number or 1)] = node

    def added(self, node, t, shifts):
        """t + e for every example: a (B * S, d) output has S rows of each."""
        dim, examples = self.case.dims.get(node, 0), self.case.examples
        rows = t.shape[dim] // examples
        shape = (rows, *t.shape[1:]) if rows > 1 else t.movedim(dim, 0).shape[1:]
        self.shapes[node] = torch.Size(shape)
        if node not in shifts:
            return t.clone()
        e = shifts[node]
        return t + (e.repeat(examples, *[1] * (t.dim() - 1)) if rows > 1 else e.unsqueeze(dim))

    def hook(self, name, counts, shifts):
        def add(_, __, out):
            counts[name] += 1
            node = self.calls.get((name, counts[name]))
            if node is None:
                return None
            leaves, spec = tree_flatten(out)
            place = self.case.leaves.get(node, 0)
            leaves[place] = self.added(node, leaves[place], shifts)
            return tree_unflatten(leaves, spec)

        return self.module.get_submodule(name).register_forward_hook(add)

    def __call__(self, shifts):
        counts, (args, kwargs) = Counter(), arguments(self.case.given)
        names = {name for name, _ in self.calls} - {"output"}
        handles = [self.hook(name, counts, shifts) for name in names]
        try:
            with sdpa_kernel(SDPBackend.MATH):
                out = self.module(*args, **kwargs)
        finally:
            for handle in handles:
                handle.remove()
        if "output" in self.case.options:
            out = out[self.case.options["output"]]
        if "output" in self.nodes and isinstance(out, dict):
            out = {**out, "logits": self.added("output", out["logits"], shifts)}
        elif "output" in self.nodes:
            out = self.added("output", out, shifts)
        loss = F.cross_entropy if self.case.loss == "cross_entropy" else self.case.loss
        return loss(out, self.case.target)


def hessian_by_hooks(case, nodes):
    """Blocks of torch's dense Hessian in the shifts of these nodes."""
    loss = ShiftedLoss(case, nodes)
    with torch.no_grad():
        loss({})
    return hessian_blocks(loss, {v: loss.shapes[v] for v in nodes})
