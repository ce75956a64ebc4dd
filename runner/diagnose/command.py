"""`hess-run diagnose target=...`: the command line of a diagnosis."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from runner.contract import SettingError, one_of, setting
from runner.contract import check as check_limits

HELP = """\
hess-run diagnose target=package.module:function [key=value ...]   (or target=file.py:function)

The function takes nothing and returns (module, loss, batch) or (module, loss, loader): a torch.nn.Module in evaluation
mode, loss(output, target) as in torch, and batch = (input, target). To follow a training it yields (step, module, loss,
batch or loader) as often as it likes. Measured: a certificate of the products; R, C, D and Gauss-Newton gap between the
outputs of the named submodules; the share of curvature that block-diagonal methods discard, and the picture between
groups of parameters; top eigenvalues, spectral density, trace, and the bound lambda_sup beside lambda_1; the gradient
noise scale if there is a loader. The price is told in gradients before it starts. Run the same command again to go on.

keys (= default)
  nodes=NAME,PATTERN,...   outputs of which submodules (default: those with parameters directly below the module);
                           * stays inside one part of a name, ** crosses its dots: layers.*,**.attn
  output=NAME              which tensor of a structured output the loss gets: logits, or 0 (default: all of it)
  batch_dim=0              dimension of the examples in inputs and targets (1 for an LSTM with batch_first=False)
  shared=NAME,...          inputs that belong to no example: a mask, or 1 for the second positional argument
  steps=0,100              of a training: these only (default: every one that is yielded)
  batches=16               batches taken of a loader
  parts=NAME,...           of {parts} (default: all)
  eigenvalues=10  seed=42  device=cpu  threads=1  memory=1 (GiB for one measurement)
  outputs=outputs/diagnose  name=MODULE-FUNCTION  force=false (measure again what is stored)

writes <outputs>/<name>/index.html, tables/*.csv, figures/*.png
"""


@dataclass(frozen=True)
class Request:
    """A parsed command line."""

    target: str = ""
    nodes: tuple[str, ...] = ()
    output: str = ""
    batch_dim: int = setting(0, at_least=0)
    shared: tuple[str, ...] = ()
    steps: tuple[int, ...] = ()
    batches: int = setting(16, above=0)
    parts: tuple[str, ...] = ()
    eigenvalues: int = setting(10, above=0)
    seed: int = 42
    device: str = "cpu"
    threads: int = setting(1, above=0)
    memory: float = setting(1.0, above=0)
    outputs: Path = Path("outputs/diagnose")
    name: str = ""
    force: bool = False

    def __post_init__(self) -> None:
        if not self.target:
            raise SettingError("diagnose: target=package.module:function or target=file.py:function is missing")
        check_limits(self, "")


def parse(words: Sequence[str]) -> Request:
    """The request of key=value words. Raises SettingError for unknown keys and values of the wrong kind."""
    defaults = {f.name: f.default for f in fields(Request)}
    values: dict[str, Any] = {}
    for word in words:
        key, _, text = word.partition("=")
        if key not in defaults:
            near = get_close_matches(key, defaults, n=1)
            hint = f"did you mean {near[0]}=?" if near else f"known: {', '.join(defaults)}"
            raise SettingError(f"diagnose: unknown key {key!r}; {hint}")
        values[key] = _value(key, text, type(defaults[key]))
    return Request(**values)


def _value(key: str, text: str, kind: type) -> Any:
    if kind is bool:
        one_of(key, text.lower(), ("true", "false"))
        return text.lower() == "true"
    names = tuple(word.strip() for word in text.strip("[]").split(",") if word.strip())
    try:
        if kind is tuple:
            return tuple(map(int, names)) if key == "steps" else names
        return kind(text)
    except ValueError as error:
        expected = {int: "a whole number", float: "a number", tuple: "whole numbers separated by commas"}[kind]
        raise SettingError(f"{key}: expected {expected}, found {text!r}") from error


def help_text() -> str:
    """The help of the verb."""
    from runner.diagnose.all_parts import PARTS

    return HELP.format(parts=", ".join(PARTS)).rstrip()


def main(arguments: Sequence[str], say: Callable[[str], None] = print) -> int:
    """Diagnose; exit status 0, or 1 when a part failed. Raises SettingError for mistakes, and where the function fails
    after some snapshots: those are measured, and on the page."""
    request = parse(arguments)
    from runner.diagnose.all_parts import chosen
    from runner.diagnose.checks import check
    from runner.diagnose.measure import diagnose
    from runner.diagnose.problem import Options, Problem
    from runner.diagnose.report import write
    from runner.diagnose.target import load, snapshots
    from runner.store.outputs import check_outputs, claim_outputs
    from runner.store.store import Store

    parts = chosen(request.parts)
    check_outputs(request.outputs)
    _prepare(request)
    name, function, _ = load(request.target)
    name = request.name or name
    options = Options(
        request.nodes, request.seed, request.device, request.eigenvalues, request.memory, request.threads,
        request.output, request.batch_dim, request.shared,
    )  # fmt: skip
    found = snapshots(function, request.batches, request.device)
    first = next(found, None)
    if first is None:
        raise SettingError("target: the function yielded nothing")
    check(Problem(first, options))
    claim_outputs(request.outputs)
    store = Store(request.outputs, name)

    ended: list[SettingError] = []

    def all_of_them() -> Any:
        yield first
        try:
            yield from found
        except SettingError as error:  # a training that broke off: what came before it gets its page
            ended.append(error)

    outcome = diagnose(all_of_them(), parts, options, store, say, steps=request.steps, force=request.force)
    for line in (f"{name}: {outcome.found} parts were stored", *write(name, store.root, outcome)):
        say(line)
    if ended:
        raise ended[0]
    return 1 if outcome.failed else 0


def _prepare(request: Request) -> None:
    """Threads, seeds and device. Raises SettingError for a device that is not there."""
    import numpy
    import torch

    from runner.training.allocator import keep_freed_memory

    try:
        torch.zeros(1, device=request.device)
    except (RuntimeError, AssertionError) as error:
        line = str(error).splitlines()[0]
        raise SettingError(f"device: {request.device} cannot be used ({line}); this machine has cpu") from error
    torch.set_num_threads(request.threads)
    keep_freed_memory()
    torch.manual_seed(request.seed)
    numpy.random.seed(request.seed % 2**32)  # noqa: NPY002  the user's function may use the global generator
    random.seed(request.seed)
