"""A tiny experiment for testing the runner: pseudo-random numbers, on demand slow, failing or
odd."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from typing import ClassVar

from runner.contract import Analysis, Claim, Experiment, decide, grid, setting
from runner.kinds.dataset import GaussianData


@dataclass(frozen=True, kw_only=True)
class Toy(Experiment):
    version: ClassVar[int] = 1
    title: ClassVar[str] = "Toy"
    paper: ClassVar[str] = "none"
    reproduces: ClassVar[str] = "nothing"

    analysis = "tests.run.toy:ToyAnalysis"

    width: list[int] = grid()
    shape: list[str] = grid(choices=("round", "square"))
    samples: int = setting(20, above=0)
    scale: float = 1.0
    pause: float = 0.0
    fail_at: int = 0
    dataset: GaussianData

    def measure(self, cell, ctx):
        if cell.params["width"] == self.fail_at and not os.environ.get("TOY_MENDED"):
            raise RuntimeError("the toy fails where it was told to")
        if cell.params["width"] < 0 and not os.environ.get("TOY_MENDED"):
            raise RuntimeError("widths have no sign")
        ctx.log(f"measuring {cell.label}")
        if cell.params["width"] == int(os.environ.get("TOY_KILLED_AT", "0")):
            os.kill(os.getpid(), signal.SIGKILL)  # as the system does when memory is out
        bytearray(int(os.environ.get("TOY_MEMORY", "0")))
        for _ in range(10):
            time.sleep(self.pause / 10)
        values = ctx.torch_generator(f"values/{cell.label}").initial_seed()
        numbers = (
            ctx.numpy_generator(f"numbers/{cell.label}").standard_normal(self.samples) * self.scale
        )
        state = ctx.checkpoints({"width": cell.params["width"]})
        if state is not None:
            state.save("last", {"seed": ctx.seed})
            assert state.load("last") == {"seed": ctx.seed}
        return {
            "numbers": {
                "index": range(self.samples),
                "value": numbers,
                "status": ["ok"] * self.samples,
            },
            "keys": {"stream": [str(values)]},
        }


class ToyAnalysis(Analysis):
    def figures(self):
        """One, where it is asked for: matplotlib takes longer to import than the toy to measure."""
        return {"numbers": self._line} if os.environ.get("TOY_FIGURES") else {}

    def _line(self):
        """The numbers."""
        from runner.report import figures

        figure, axes = figures.new_figure(width=1, height=1)
        axes[0, 0].plot(self.tables["numbers"]["value"])
        axes[0, 0].set_axis_off()
        return figure

    def documents(self):
        return {"toy.md": f"# Toy\n\n{len(self.tables['numbers'])} numbers\n"}

    def claims(self):
        mean = self.tables["numbers"]["value"].mean()
        return [
            Claim("centred", "the mean is near zero", "nowhere", decide(abs(mean) < 1), mean, "1")
        ]
