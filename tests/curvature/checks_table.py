"""How often operators of right networks are refused, and of wrong ones accepted, as a table.

Run: python -m tests.curvature.checks_table [--results FILE] [--page docs/other-libraries.md]
[--seeds N] [--seconds S] [NAME ...] (`make models`). Every family is built with many seeds, over
parameters and between layers, as Hessian and Gauss-Newton matrix. Builds that FILE has are not made
again; after S seconds the rest is left to the next run.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import json
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from runner.curvature import LayerOperator, ParameterOperator
from tests.curvature.cases import Own, with_backward

START, END = "<!-- checks: made by `make models` -->", "<!-- end of checks -->"
PARTS = ("hessian", "gauss_newton")
KINDS = ("parameters", "layers")
FEW, MANY = 25, 100


class Case(NamedTuple):
    module: nn.Module
    loss: Any
    data: Any
    layers: Sequence[str]
    output: str | None = None


@dataclass
class Family:
    """make: one network from its seed. parts: with which it must be refused, where it is wrong on
    purpose. cause: words of the refusal."""

    make: Callable[[int], Case]
    seeds: int = MANY
    parts: tuple[str, ...] = ()
    cause: str = ""


# ------------------------------------------------------------------ small networks


def small(between: Callable[..., Tensor], factor: float = 1.0):
    """A function between two layers. factor: of the last one, whose labels are then its own."""

    def make(seed: int) -> Case:
        torch.manual_seed(seed)
        parts = {"a": nn.Linear(4, 6), "b": nn.Linear(6, 6), "h": nn.Linear(6, 3)}
        run = lambda m, t: m.h(between(m.b, torch.tanh(m.a(t))).to(m.h.weight.dtype))  # noqa: E731
        module = Own(run, **parts)
        x, y = torch.randn(8, 4), torch.arange(8) % 3
        if factor != 1:
            with torch.no_grad():
                module.h.weight.mul_(factor)
                y = module(x).argmax(1)
        return Case(module, F.cross_entropy, (x, y), ["a", "b"])

    return make


def half_body(dtype: torch.dtype):
    """The middle in another precision, as its weights."""

    def make(seed: int) -> Case:
        case = small(lambda b, t: b(t.to(dtype)).tanh())(seed)
        case.module.b.to(dtype)
        return case

    return make


def in_float32(b, t):
    """A Llama norm."""
    wide = b(t).bfloat16().to(torch.float32)
    return wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)


def rms_norm(b, t):
    wide = b(t).to(torch.float32)
    return wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)


def layer_norm(b, t):
    return F.layer_norm(b(t).float(), (6,)).type_as(t)


def softmax(b, t):
    return 6 * F.softmax(b(t), -1, dtype=torch.float32).to(t.dtype)


def under_autocast(b, t):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return b(t).tanh()


def cast(b, t):
    return torch.tanh(b(t)).float()


def rounded(b, t):
    return b(t).bfloat16().to(t.dtype).sin()


# ------------------------------------------------------------------ faults


def detached_norm(b, t):
    wide = b(t).float()
    return wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6).detach()


def stopped(b, t):
    return b(t).tanh() + 0.1 * t.sin().detach()


def sine(slope: Callable[[Tensor], Tensor]):
    """Sine with another derivative."""
    return with_backward(torch.sin, lambda g, t: g * slope(t))


def of_float32(t: Tensor) -> Tensor:
    """Right except in float32."""
    return t.cos() * (1.02 if t.dtype == torch.float32 else 1.0)


WRONG_FIRST = sine(lambda t: 1.02 * t.cos())
WRONG_SECOND = sine(lambda t: 1.02 * t.cos() - 0.02 * t.cos().detach())
SLIGHTLY = sine(lambda t: 1.005 * t.cos() - 0.005 * t.cos().detach())
OF_FLOAT32 = sine(of_float32)
STRAIGHT = with_backward(torch.round, lambda g, _: g)


def hooked(seed: int) -> Case:
    case = small(cast)(seed)
    case.module.b.register_full_backward_hook(lambda m, i, o: tuple(1.05 * g for g in i))
    return case


# ------------------------------------------------------------------ transformers

SIZES = {"vocab_size": 40, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2}
HEADS = {"num_attention_heads": 4}
TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def tokens(logits: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(logits.float().flatten(0, 1), labels.flatten())


def of_logits(output: Any, labels: Tensor) -> Tensor:
    return tokens(output.logits, labels)


def hugging(name: str, layers: str, head: str = "ForCausalLM", **sizes: Any):
    """A model with random weights."""

    def make(seed: int) -> Case:
        library = import_module("transformers")
        torch.manual_seed(seed)
        config = getattr(library, f"{name}Config")(**TOKENS | {"use_cache": False} | sizes)
        module = getattr(library, f"{name}{head}")(config).eval()
        for p in module.parameters():
            if p.dim() > 1:
                p.data.mul_(4)  # as after some training: initial ones are nearly linear
        ids = torch.randint(3, 40, (4, 8))
        return Case(module, of_logits, ({"input_ids": ids[:, :-1]}, ids[:, 1:]), [f"{layers}.0"])

    return make


llama = hugging("Llama", "model.layers", **SIZES, **HEADS, num_key_value_heads=2)
gpt2 = hugging("GPT2", "transformer.h", "LMHeadModel", vocab_size=40, n_positions=16, n_embd=16,
               n_layer=2, n_head=2)  # fmt: skip


def t5(seed: int) -> Case:
    sizes = {
        "vocab_size": 40,
        "d_model": 16,
        "d_kv": 4,
        "d_ff": 24,
        "num_layers": 2,
        "num_heads": 4,
    }
    make = hugging(
        "T5", "encoder.block", "ForConditionalGeneration", **sizes, decoder_start_token_id=0
    )
    case = make(seed)
    given, labels = case.data
    given = {**given, "decoder_input_ids": labels.roll(1, 1)}
    return case._replace(data=(given, labels))


def adapted(config: str, make: Callable[[int], Case], **options: Any):
    """With the adapter of peft that a configuration names, its weights as after some steps."""

    def made(seed: int) -> Case:
        peft = import_module("peft")
        case = make(seed)
        given = getattr(peft, config)(task_type="CAUSAL_LM", **options)
        module = peft.get_peft_model(case.module, given).eval()
        for p in module.parameters():
            if p.requires_grad:
                p.data.add_(0.1 * torch.randn_like(p))
        path = next(n for n, _ in module.named_modules() if n.endswith(case.layers[0]))
        return case._replace(module=module, layers=[path])

    return made


def loss_inside(seed: int) -> Case:
    case = gpt2(seed)
    ids = case.data[0]["input_ids"]
    data = {"input_ids": ids, "labels": ids}
    return case._replace(loss=None, data=data, output="loss")


def planted(make: Callable[[int], Case], path: str, function: Callable[[Tensor], Tensor]):
    """With another activation."""

    def made(seed: int) -> Case:
        case = make(seed)
        owner = case.module.get_submodule(path)
        owner.act_fn = Own(lambda _, t: function(t))
        return case

    return made


HESSIAN = ("hessian",)
FAMILIES = {
    "casts inside": Family(small(cast)),
    "casts to bfloat16 and back": Family(small(rounded)),
    "RMSNorm in float32": Family(small(rms_norm)),
    "RMSNorm in float32 of bfloat16": Family(small(in_float32)),
    "LayerNorm in float32": Family(small(layer_norm)),
    "softmax in float32": Family(small(softmax)),
    "autocast inside forward": Family(small(under_autocast)),
    "body in float16": Family(half_body(torch.float16)),
    "body in bfloat16": Family(half_body(torch.bfloat16)),
    "fitted, last layer × 100": Family(small(cast, factor=100.0)),
    "fitted, last layer × 400": Family(small(cast, factor=400.0)),
    "fitted, last layer × 2,000": Family(small(cast, factor=2000.0)),
    "Llama": Family(llama, FEW),
    "Qwen2": Family(hugging("Qwen2", "model.layers", **SIZES, **HEADS, num_key_value_heads=2), FEW),
    "GPT-2": Family(gpt2, FEW),
    "GPT-NeoX": Family(hugging("GPTNeoX", "gpt_neox.layers", **SIZES, **HEADS), FEW),
    "T5": Family(t5, FEW),
    "Mamba": Family(hugging("Mamba", "backbone.layers", vocab_size=40, hidden_size=16, state_size=4,
                            num_hidden_layers=2), FEW),
    "OPT": Family(hugging("OPT", "model.decoder.layers", vocab_size=40, hidden_size=16, ffn_dim=24,
                          num_hidden_layers=2, max_position_embeddings=16, word_embed_proj_dim=16,
                          **HEADS), FEW),
    "Gemma": Family(hugging("Gemma", "model.layers", **SIZES, **HEADS, num_key_value_heads=2,
                            head_dim=4), FEW),
    "Llama, LoRA": Family(adapted("LoraConfig", llama, r=2, target_modules=["q_proj", "v_proj"]),
                          FEW),
    "Llama, IA3": Family(adapted("IA3Config", llama, target_modules=["k_proj", "down_proj"],
                                 feedforward_modules=["down_proj"]), FEW),
    "GPT-2, prefix tuning": Family(adapted("PrefixTuningConfig", gpt2, num_virtual_tokens=3), FEW),
    "GPT-2, loss inside": Family(loss_inside, FEW),
    "wrong: detached norm": Family(small(detached_norm), FEW, PARTS),
    "wrong: first derivative by 2 %": Family(small(lambda b, t: WRONG_FIRST(b(t))), FEW, PARTS),
    "wrong: second derivative by 2 %": Family(small(lambda b, t: WRONG_SECOND(b(t))), FEW, HESSIAN),
    "wrong: by 0.5 % inside a cast": Family(small(lambda b, t: SLIGHTLY(b(t).float())), FEW,
                                            HESSIAN),
    "wrong: stopped gradient": Family(small(stopped), FEW, PARTS),
    "wrong: hook of a module": Family(hooked, FEW, PARTS, "hook"),
    "wrong: in float32 alone": Family(small(lambda b, t: OF_FLOAT32(b(t))), FEW, PARTS),
    "wrong: straight-through estimator": Family(small(lambda b, t: STRAIGHT(4 * b(t)) / 4), FEW,
                                                PARTS, "straight-through"),
    "wrong: Llama, second derivative by 2 %": Family(
        planted(llama, "model.layers.1.mlp", WRONG_SECOND), FEW, HESSIAN),
    "wrong: Llama, in float32 alone": Family(
        planted(llama, "model.layers.1.mlp", OF_FLOAT32), FEW, PARTS),
}  # fmt: skip


# ------------------------------------------------------------------ builds

Row = dict[str, Any]


def build(case: Case, kind: str, part: str) -> Row:
    """What building an operator says: statuses of the identities, and the line of a refusal."""
    given = case.module, case.loss, case.data
    try:
        if kind == "layers":
            found = LayerOperator(*given, layers=case.layers, part=part, output=case.output)
        else:
            found = ParameterOperator(*given, part=part, output=case.output)
    except ValueError as error:
        return {"refused": str(error)}
    return {"refused": "", **{key[0]: text for key, text in found.checks.items()}}


def builds(names: Sequence[str], seeds: int) -> Iterator[tuple[str, int, str, str]]:
    """(family, seed, kind, part) of all that belongs to the table."""
    for name in names:
        family = FAMILIES[name]
        parts = family.parts or PARTS
        if name == "GPT-2, loss inside":
            parts = HESSIAN
        count = min(seeds, family.seeds)
        for seed, kind, part in itertools.product(range(count), KINDS, parts):
            yield name, seed, kind, part


def table(rows: Sequence[Row]) -> str:
    """One line for families with the same counts, which are of each of them."""
    listed: dict[tuple[str, ...], list[str]] = {}
    for name, family in FAMILIES.items():
        of_family = [row for row in rows if row["family"] == name]
        if not of_family:
            continue
        right: Counter[str] = Counter()
        for row in of_family:
            for identity in "23":
                right[identity] += str(row.get(identity, "")).startswith("right")
        refused = sum(bool(row["refused"]) for row in of_family)
        cells = [str(len(of_family)), str(refused)]
        if family.parts:
            cells += ["–", "–"]
        else:
            cells += [str(right["2"]), str(right["3"])]
        listed.setdefault(tuple(cells), []).append(name)
    lines = ["| networks | builds each | refused | 2 right | 3 right |", "|---|---|---|---|---|"]
    lines += [f"| {'; '.join(names)} | {' | '.join(cells)} |" for cells, names in listed.items()]
    return "\n".join(lines)


def failures(rows: Sequence[Row]) -> list[str]:
    """What misses the goals."""
    found = []
    for row in rows:
        family = FAMILIES[row["family"]]
        place = f"{row['family']}, seed {row['seed']}, {row['kind']}, {row['part']}"
        if bool(row["refused"]) != bool(family.parts):
            found.append(f"{place}: {row['refused'] or 'accepted'}")
        elif family.cause not in row["refused"]:
            found.append(f"{place}: another cause, {row['refused']}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", help="parts of names: these families alone")
    parser.add_argument("--results", type=Path, default=Path("outputs/checks.jsonl"))
    parser.add_argument("--page", type=Path)
    parser.add_argument("--seeds", type=int, default=MANY)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    words = given.names or [""]
    names = []
    for name in FAMILIES:
        if any(word in name for word in words):
            names.append(name)
    given.results.parent.mkdir(parents=True, exist_ok=True)
    rows = []
    if given.results.exists():
        rows = [json.loads(line) for line in given.results.read_text().splitlines()]
    made = {(row["family"], row["seed"], row["kind"], row["part"]) for row in rows}
    start = time.monotonic()
    with given.results.open("a") as file:
        for place in builds(names, given.seeds):
            if place in made:
                continue
            if time.monotonic() - start > given.seconds:
                break
            name, seed, kind, part = place
            case = copy.deepcopy(FAMILIES[name].make(seed))
            row = dict(zip(("family", "seed", "kind", "part"), place, strict=True))
            rows.append(row | build(case, kind, part))
            file.write(json.dumps(rows[-1]) + "\n")
    found = table(rows)
    print(found, *failures(rows)[:40], sep="\n")
    if given.page:
        text = given.page.read_text()
        before, rest = text.split(START)
        given.page.write_text(f"{before}{START}\n\n{found}\n\n{END}{rest.split(END)[1]}")
    if failures(rows):
        sys.exit(1)


if __name__ == "__main__":
    main()
