"""An experiment of your own, without touching the package.

Two files in any folder: a class with its measuring function, and a YAML file with its settings.
`--config-dir` adds the files of your folder to the project's, `HESS_MODULES` names your modules
that may be imported. A YAML file can also extend an experiment of the project: `defaults:
[exp1_resonance, _self_]`, then the settings that differ. `docs/adding-experiment.md` adds figures
and statements.
"""

import os
import subprocess
from pathlib import Path

Path("conf/experiment").mkdir(parents=True)
Path("conf/experiment/sharpness.yaml").write_text("""\
# @package _global_
experiment:
  _target_: sharpness.Sharpness
  width: [4, 8]
""")
Path("sharpness.py").write_text("""\
from dataclasses import dataclass
from typing import ClassVar

from runner import contract as c


@dataclass(frozen=True, kw_only=True)
class Sharpness(c.Experiment):
    title: ClassVar[str] = "Largest Hessian eigenvalue by width"
    width: list[int] = c.grid(above=0)

    def measure(self, cell, ctx):
        import torch
        from torch import nn

        from runner.curvature import ParameterOperator, top_eigenpairs

        torch.manual_seed(ctx.seed)
        net = nn.Sequential(nn.Linear(5, cell.params["width"]), nn.Tanh())
        net.append(nn.Linear(cell.params["width"], 2))
        data = [(torch.randn(32, 5), torch.randn(32, 2))]
        found = top_eigenpairs(ParameterOperator(net.eval(), nn.MSELoss(), data), 1)
        return {"spectrum": [{"largest": float(found.values[0])}]}
""")
trusted = {"HESS_MODULES": "sharpness", "PYTHONPATH": f"{os.environ.get('PYTHONPATH', '')}:."}
command = ["hess-run", "--config-dir", "conf", "-m", "experiment=sharpness", "seed=1,2"]
done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | trusted)
print(done.stdout)
print(Path("outputs/sharpness/spectrum.csv").read_text())
