"""`hess-run diagnose target=...`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from functools import partial
from inspect import getdoc

from runner.diagnose.request import parse
from runner.run.command_line import Call
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

    keys (= default)
      nodes=NAME,PATTERN,...   outputs of which submodules (default: those with parameters directly
                               below the module); * stays inside one part of a name, ** crosses its
                               dots: layers.*,**.attn
      output=NAME              which tensor of a structured output the loss gets: logits, or 0
                               (default: all of it)
      batch_dim=0              dimension of the examples in inputs (1 for batch_first=False)
      steps=0,100              of a training: these only (default: every one that is yielded)
      checkpoints=FILE,...     saved states, files or patterns (runs/step*.pt): one row each
      batches=16               batches used of a loader
      parts=NAME,...           of network, certificate, layers, groups, eigenvalues, density, trace,
                               noise, batches (default: all)
      eigenvalues=10  seed=42  device=cpu  threads=1  memory=1 (GiB for one measurement)
      outputs=outputs/diagnose  name=MODULE-FUNCTION  force=false (measure again what is stored)

    Started by torchrun, the first process runs the target and measures, as if it were the only one;
    the others end.

    writes <outputs>/<name>/index.html, report.md, tables/*.csv, figures/*.png
    """
    if not call.settings:
        print(getdoc(diagnose_command))
        return 0
    if os.environ.get("RANK", "0") != "0":  # of torchrun
        return 0
    os.environ |= {name: size for name, size in ALONE.items() if name in os.environ}
    request = parse(call.settings)
    check_outputs(request.outputs)
    request = replace(request, outputs=request.outputs.absolute())
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
