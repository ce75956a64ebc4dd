"""hess-run: run, list, plan, report, data.

Exit status: 0 when all is well, 1 when a cell failed or the disk is full, 2 for a mistake in what was asked (one line
says which; nothing is written), 130 when interrupted.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback

from runner.contract.schema import SettingError

HELP = """\
hess-run: experiments on the Hessian of neural networks, from five papers, with one verdict for each number.

  hess-run experiment=NAME [key=value ...]       measure what is not stored yet, then report
  hess-run -m experiment=NAME seed=42,43,44      sweep over seeds or any key (also seed=range(42,47), a=1,2 b=3,4)
  hess-run list                                  experiments, paper, cells, stored cells, predicted cost
  hess-run plan experiment=NAME [key=value ...]  what would run, what is stored, time and memory; runs nothing
  hess-run report [experiment=NAME ...]          tables, figures, statistics, claims and scorecard from the store
  hess-run data fetch|verify cifar10|cifar100    download the official archive (resumes, checks), or check it

keys of every run (= default)
  seed=42  profile=paper|quick  outputs=outputs  jobs=1 (processes)  threads=1  device=cpu  force=false
keys of an experiment: the fields of conf/experiment/NAME.yaml, by name (hidden=3, protocol=printed, 'depth=[8,10]'),
  and of its groups by path (training.steps=5000, dataset.train=100, dataset=surrogate)

scale out: -m hydra/launcher=joblib (this machine), submitit_slurm, ray; one store, each cell measured once.
stop with Ctrl-C and run the same command again: finished cells are kept.

experiments: {names}
"""

_ENDING = {"status": 0}  # exit status that the report after a run asks for


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the command."""
    argv = list(sys.argv[1:] if arguments is None else arguments)
    sys.exit(_guarded(lambda: dispatch(argv)))


def _guarded(action: Callable[[], int]) -> int:
    """Run an action; turn what can go wrong into one line and an exit status."""
    from runner.run.execute import NoSpace

    try:
        return action()
    except SettingError as error:
        if os.environ.get("HYDRA_FULL_ERROR") == "1":
            raise
        _say(str(error))
        return 2
    except NoSpace as error:
        _say(f"no space left ({error}); finished cells are stored. Free space and run again.")
        return 1
    except KeyboardInterrupt:
        _say("interrupted; finished cells are stored. Run the same command again to go on.")
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _say(line: str) -> None:
    """One line on standard error."""
    print(f"hess-run: {' '.join(line.split())}", file=sys.stderr)


def dispatch(argv: list[str]) -> int:
    """Choose the verb."""
    from runner.run import config

    if not argv or argv[0] in ("--help", "-h", "help"):
        print(HELP.format(names=", ".join(config.experiment_names())), end="")
        return 0
    if argv[0] == "--version":
        from runner import __version__

        print(f"hess-run {__version__}")
        return 0
    verbs = {"list": list_command, "plan": plan_command, "report": report_command, "data": data_command}
    return verbs[argv[0]](argv[1:]) if argv[0] in verbs else run_command(argv)


def _jobs(argv: Sequence[str]) -> tuple[Any, list[Any]]:
    """The parsed command line and every checked job of it."""
    from runner.run import config
    from runner.store.outputs import check_outputs

    arguments = config.parse(argv)
    jobs = [config.build_job(overrides) for overrides in config.expand(arguments)]
    for job in jobs:
        check_outputs(job.outputs)
    return arguments, jobs


def run_command(argv: list[str]) -> int:
    """Measure, then report."""
    import hydra

    from runner.run import config
    from runner.run.execute import end_on_sigterm
    from runner.run.requirements import check_data
    from runner.store.outputs import claim_outputs

    arguments, jobs = _jobs(argv)
    for job in jobs:
        check_data(job.experiment)
    for outputs in {job.outputs for job in jobs}:
        claim_outputs(outputs)
    end_on_sigterm()
    sys.argv = [sys.argv[0], *arguments.argv]
    _ENDING["status"] = 0
    hydra.main(version_base="1.3", config_path=str(config.CONF), config_name="config")(run_job)()
    return _ENDING["status"]


def run_job(cfg: Any) -> None:
    """One job, in this process or in one that a Hydra launcher made."""
    from hydra.core.hydra_config import HydraConfig

    from runner.run import config
    from runner.run.execute import run

    job = config.build_job(list(HydraConfig.get().overrides.task))
    outcome = run(job)
    counts = f"{len(outcome.measured)} measured, {len(outcome.stored)} were stored, {len(outcome.failed)} failed"
    print(f"{job.name} seed={job.seed}: {counts}", flush=True)
    if outcome.interrupted:
        raise KeyboardInterrupt


class ReportAfterRun(Callback):
    """Hydra callback: the report of everything that a run or multirun touched, once, at its end."""

    def on_run_end(self, config: Any, **_: Any) -> None:
        self._report(list(config.hydra.overrides.task), multirun=False)

    def on_multirun_end(self, config: Any, **_: Any) -> None:
        self._report(list(config.hydra.overrides.task), multirun=True)

    def _report(self, overrides: list[str], multirun: bool) -> None:
        from runner.run import config

        def action() -> int:
            arguments = config.Arguments(tuple(overrides), multirun)
            jobs = [config.build_job(job) for job in config.expand(arguments)]
            complete = report_jobs(jobs)
            return 0 if complete else 1

        try:
            status = _guarded(action)
        except Exception as error:  # Hydra would turn it into a warning; the cells are safe, the report is not there
            if os.environ.get("HYDRA_FULL_ERROR") == "1":
                traceback.print_exc()
            _say(f"the report failed ({type(error).__name__}: {error}); all cells are stored, see hess-run report")
            status = 1
        _ENDING["status"] = max(_ENDING["status"], status)


def report_jobs(jobs: Sequence[Any]) -> bool:
    """Report each set of settings among `jobs` once; True when none of their cells is missing."""
    from runner.report.collect import report
    from runner.report.write import write_overview
    from runner.run.config import protocol

    groups: dict[tuple[Path, str], list[Any]] = {}
    for job in jobs:
        groups.setdefault((job.outputs, job.identity.key), []).append(job)
    for members in groups.values():
        collection, lines = report(members, protocol)
        print("\n".join(lines))
        for cell in collection.failures:
            print(f"  failed: {cell}: {cell.error}", file=sys.stderr)
    for outputs in {job.outputs for job in jobs}:
        if outputs.is_dir():
            write_overview(outputs)
    return all(job.store.has(cell_id) for job in jobs for cell_id, _ in job.cells())


def report_command(argv: list[str]) -> int:
    """Report from the store: one experiment, or every one that has cells."""
    from runner.run import config

    if any(a.startswith("experiment=") for a in argv):
        _, jobs = _jobs(argv)
    else:
        jobs = [job for name in config.experiment_names() for job in _jobs([f"experiment={name}", *argv])[1]]
        jobs = [job for job in jobs if any(True for _ in job.store.all())]
        if not jobs:
            print("nothing is stored yet; begin with: hess-run experiment=NAME (see hess-run list)")
            return 0
    report_jobs(jobs)
    return 0


def list_command(argv: list[str]) -> int:
    """One line for every experiment."""
    from runner.run.listing import listing

    if len(argv) > 1 or any(not a.startswith("outputs=") for a in argv):
        raise SettingError(f"list takes at most outputs=PATH, found {' '.join(argv)}")
    outputs = Path(argv[0].partition("=")[2]) if argv else Path("outputs")
    print("\n".join(listing(outputs)))
    return 0


def plan_command(argv: list[str]) -> int:
    """What a run would do."""
    from runner.run.listing import plan

    _, jobs = _jobs(argv)
    print("\n".join(plan(jobs)))
    return 0


def data_command(argv: list[str]) -> int:
    """Fetch or verify a data set."""
    from runner.run.requirements import data

    return data(argv)


if __name__ == "__main__":
    from runner.cli import main as run_main  # the callback knows this module by its name, not as __main__

    run_main()
