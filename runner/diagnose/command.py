"""`hess-run diagnose target=...`: its keys, and the process of its own in which the target runs."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from functools import partial
from inspect import getdoc
from pathlib import Path
from typing import Any

from runner.contract import SettingError, check, one_of, setting, short, whole_number
from runner.contract.schema import imported
from runner.diagnose.target import exit_text
from runner.run.command_line import Call
from runner.run.console import FULL_ERROR, guarded, protect, say
from runner.run.execute import end_with, stop
from runner.store.job import check_outputs

PARTS = ("network", "certificate", "layers", "groups", "eigenvalues", "density", "trace", "noise")
"""What is measured, in this order."""
ALONE = {"WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1", "GROUP_WORLD_SIZE": "1"}
"""What torchrun tells its processes; a target that calls init_process_group must not wait for those that have ended."""
DRIVER = "runner.diagnose.experiment:diagnose"
"""Measures a request; named, since this module is read by a process that never imports torch."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Keys that change numbers."""

    nodes: tuple[str, ...] = ()
    eigenvalues: int = setting(10, above=0)
    memory: float = setting(1.0, above=0, at_most=2.0**20)
    output: str = ""
    batch_dim: int = setting(0, at_least=0)
    shared: tuple[str, ...] = ()
    seed: int = setting(42, at_least=0, at_most=2**63 - 1)
    device: str = "cpu"
    threads: int = setting(1, above=0, at_most=1024)

    @property
    def budget(self) -> int:
        """Bytes for one measurement."""
        return int(self.memory * (1 << 30))


@dataclass(frozen=True, kw_only=True)
class Request(Options):
    """A parsed command line."""

    target: str = ""
    steps: tuple[int, ...] = ()
    batches: int = setting(16, above=0)
    parts: tuple[str, ...] = ()
    outputs: Path = Path("outputs/diagnose")
    name: str = ""
    force: bool = False
    words: tuple[str, ...] = ()
    """The words of the command line."""

    def __post_init__(self) -> None:
        if not self.target:
            raise SettingError(
                "diagnose: target=package.module:function or target=file.py:function is missing"
            )
        check(self, "")
        one_of("parts", list(self.parts), PARTS)
        if self.name and not re.fullmatch(r"\w[\w.-]*", self.name):
            raise SettingError(
                f"name: expected letters, digits, '.', '-' and '_', found {short(repr(self.name))}"
            )

    @property
    def file(self) -> str:
        """The file or module of the target."""
        return self.target.rpartition(":")[0] or self.target


def parse(words: Sequence[str]) -> Request:
    """The request of key=value words. Raises SettingError for unknown keys and values of the wrong kind."""
    defaults = {f.name: f.default for f in fields(Request) if f.name != "words"}
    values: dict[str, Any] = {}
    for word in words:
        key, _, text = word.partition("=")
        if key not in defaults:
            near = get_close_matches(key, defaults, n=1)
            hint = f"did you mean {near[0]}=?" if near else f"known: {', '.join(defaults)}"
            raise SettingError(f"diagnose: unknown key {short(repr(key))}; {hint}")
        values[key] = _value(key, text, type(defaults[key]))
    return Request(**values)


def _value(key: str, text: str, kind: type) -> Any:
    if kind is bool:
        one_of(key, text.lower(), ("true", "false"))
        return text.lower() == "true"
    names = tuple(word.strip() for word in text.strip("[]").split(",") if word.strip())
    try:
        if kind is tuple:
            return tuple(whole_number(key, name) for name in names) if key == "steps" else names
        if kind is int:
            return whole_number(key, text)
        return kind(text)
    except SettingError:
        raise
    except ValueError as error:
        expected = {
            int: "a whole number",
            float: "a number",
            tuple: "whole numbers separated by commas",
        }[kind]
        raise SettingError(f"{key}: expected {expected}, found {short(repr(text))}") from error


def diagnose_command(call: Call) -> int:
    """hess-run diagnose target=package.module:function [key=value ...]   (or target=file.py:function)

    The function takes nothing and returns (module, loss, batch) or (module, loss, loader): a torch.nn.Module in
    evaluation mode, loss(output, target) as in torch, and batch = (input, target). To follow a training it yields
    (step, module, loss, batch or loader) as often as it likes. It runs in a process of its own, without arguments and
    input; what it prints is on standard error.

    Measured: a numerical check of the products; R, C, D and Gauss-Newton gap between the outputs of the named
    submodules; the share of curvature that block-diagonal methods discard, and the coupling of groups of parameters;
    top eigenvalues, spectral density, trace, and the upper bound lambda_sup of lambda_1; the gradient noise scale if
    there is a loader. The cost is predicted in gradients before it starts. Run the same command again to continue.

    keys (= default)
      nodes=NAME,PATTERN,...   outputs of which submodules (default: those with parameters directly below the module);
                               * stays inside one part of a name, ** crosses its dots: layers.*,**.attn
      output=NAME              which tensor of a structured output the loss gets: logits, or 0 (default: all of it)
      batch_dim=0              dimension of the examples in inputs and targets (1 for an LSTM with batch_first=False)
      shared=NAME,...          inputs that belong to no example: a mask, or 1 for the second positional argument
      steps=0,100              of a training: these only (default: every one that is yielded)
      batches=16               batches used of a loader
      parts=NAME,...           of network, certificate, layers, groups, eigenvalues, density, trace, noise
                               (default: all)
      eigenvalues=10  seed=42  device=cpu  threads=1  memory=1 (GiB for one measurement)
      outputs=outputs/diagnose  name=MODULE-FUNCTION  force=false (measure again what is stored)

    Started by torchrun, the first process runs the target and measures, as if it were the only one; the others end.

    writes <outputs>/<name>/index.html, report.md, tables/*.csv, figures/*.png
    """
    if not call.settings:
        print(getdoc(diagnose_command))
        return 0
    if os.environ.get("RANK", "0") != "0":  # of torchrun
        return 0
    os.environ |= {name: size for name, size in ALONE.items() if name in os.environ}
    return main(call.settings)


def main(words: Sequence[str], tell: Callable[[str], None] = print) -> int:
    """Run the target and measure in a process of its own, and pass on what that says.

    Returns
    -------
    Exit status: 0, or 1 where a part failed or the process was killed.

    Raises
    ------
    SettingError
        For a mistake in the words or in the target, and for a target that ends its process.
    """
    request = parse(words)
    check_outputs(request.outputs)
    request = replace(request, outputs=request.outputs.absolute(), words=tuple(words))
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_serve, args=(theirs, request, os.getpid()))
    process.start()
    theirs.close()
    try:
        status = None
        while status is None and process.is_alive():
            status = _pass_on(ours, tell, 0.1)
        status = _pass_on(ours, tell) if status is None else status
        process.join(1.0)
    finally:
        stop([process])
    if status is not None:
        return status
    code = process.exitcode or 0
    if code < 0:
        name = signal.Signals(-code).name
        say(
            f"target: {request.file}: its process was ended by {name}; finished parts are stored. Run again to go on."
        )
        return 1
    raise SettingError(
        f"target: {request.file} ended its process with status {code} (os._exit?); remove that call"
    )


def _pass_on(pipe: Any, tell: Callable[[str], None], seconds: float = 0.0) -> int | None:
    """Pass on the messages of the next `seconds`; the exit status where it is among them."""
    try:
        while pipe.poll(seconds):
            kind, content = pipe.recv()
            if kind == "line":
                tell(content)
            elif kind == "mistake":
                raise SettingError(content)
            else:
                return int(content)
    except (EOFError, ConnectionError):
        pass
    return None


def _serve(pipe: Any, request: Request, parent: int) -> None:
    """The process of the target. Its arguments, input and output are not those of the command."""
    protect()
    end_with(parent)
    multiprocessing.set_start_method(None, force=True)  # the usual one, for the workers of a loader
    printed = _Printed()
    sys.argv, sys.stdout = [request.file], printed  # type: ignore[assignment]
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.fork = os.forkpty = _no_fork  # type: ignore[assignment]

    def tell(line: str) -> None:
        pipe.send(("line", line))

    try:
        message: tuple[str, Any] = "status", imported(DRIVER, "diagnose")(request, tell)
    except SettingError as error:
        if FULL_ERROR:
            traceback.print_exc()
        message = "mistake", str(error)
    except SystemExit as error:
        message = "mistake", f"target: {exit_text(error, request.file)}"
    except KeyboardInterrupt:
        return
    except Exception as error:
        message = "status", guarded(partial(_raised, error))
    if printed.lines:
        tell(f"target: {request.file} printed {printed.lines} lines; they are on standard error")
    pipe.send(message)


def _raised(error: Exception) -> int:
    raise error


class _Printed:
    """Standard output of a target: standard error, with its lines counted."""

    def __init__(self) -> None:
        self.lines = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.stderr, name)

    def write(self, text: str) -> int:
        self.lines += text.count("\n")
        return sys.stderr.write(text)


_FORK = os.fork


def _no_fork() -> int:
    """os.fork of a target: workers of a loader may be forked; a copy of the measuring process would measure as well."""
    caller = sys._getframe(1)
    if caller.f_globals.get("__name__", "").startswith("multiprocessing"):
        return _FORK()
    place = f"{Path(caller.f_code.co_filename).name}:{caller.f_lineno}"
    raise SettingError(
        f"target: {place} forks its process (os.fork); a diagnosis needs one process: remove that call"
    )
