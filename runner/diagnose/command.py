"""`hess-run diagnose target=...`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from functools import partial

from runner.diagnose.settings import Request
from runner.run.command_line import Call, help_text
from runner.store.job import check_outputs

ALONE = {"WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1", "GROUP_WORLD_SIZE": "1"}
"""What torchrun tells its processes; a target that calls init_process_group must not wait for those
that have ended."""


def diagnose_command(call: Call) -> int:
    """hess-run diagnose target=package.module:function [key=value ...]
    hess-run diagnose target=file.py:function [key=value ...]

    The function takes nothing and returns (module, loss, batch) or (module, loss, loader): a
    torch.nn.Module, best in evaluation mode, loss(output, target) as in torch, and batch = (input,
    target); loss is None for a module that returns its loss itself (output=loss where it returns
    more). To follow a training it yields (step, module, loss, batch or loader) as often as it
    likes; checkpoints=FILES measures a network that it returns at saved states. It runs in the
    process of the command, without arguments and input; what it prints is on standard error.

    Measured: a numerical check of the products; R, C, D and Gauss-Newton gap between the outputs of
    the named submodules; the share of curvature that block-diagonal methods discard, and the
    coupling of groups of parameters; top eigenvalues, spectral density, trace, and the upper bound
    lambda_sup of lambda_1; with several batches the gradient noise scale and standard errors over
    batches. The cost is predicted in gradients before it starts. Run the same command again to
    continue.

    Started by torchrun, the first process runs the target and measures, as if it were the only one;
    the others end.

    writes <outputs>/<name>/index.html, report.md, *.csv, figures/*.png
    """
    request: Request = call.keys
    if not request.target:
        print(help_text(call))
        return 0
    if os.environ.get("RANK", "0") != "0":  # of torchrun
        return 0
    os.environ |= {name: size for name, size in ALONE.items() if name in os.environ}
    check_outputs(request.folder)
    from runner.diagnose.experiment import diagnose

    console = sys.stdout
    with _as_if_alone(request.file):
        return diagnose(request, partial(print, file=console))


@contextmanager
def _as_if_alone(file: str) -> Iterator[None]:
    """The target has no arguments and no input, and prints to standard error."""
    arguments = sys.argv
    given = sys.stdin
    with open(os.devnull, encoding="utf-8") as nothing, redirect_stdout(sys.stderr):
        sys.argv = [file]
        sys.stdin = nothing
        try:
            yield
        finally:
            sys.argv = arguments
            sys.stdin = given
