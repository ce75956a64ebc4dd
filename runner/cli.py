"""hess-run: demo, run, list, plan, show, report, why, data, store, verify, diagnose.

Exit status: 0 when all is well, 1 when a cell failed or the disk is full, 2 for a mistake in what was asked (one line
says which; nothing is written), 130 when interrupted.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from runner.contract.schema import SettingError
from runner.run import endings
from runner.run.sources import FULL_ERROR

_ENDING: dict[str, Any] = {"status": 0, "reported": False}
"""What the report after a run leaves for its end: the exit status it asks for, and that it was made."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the command."""
    argv = list(sys.argv[1:] if arguments is None else arguments)
    if arguments is None:
        signal.signal(signal.SIGTERM, _interrupt)  # from the first moment, while settings are read too
    sys.exit(endings.guarded(lambda: dispatch(argv)))


def _interrupt(number: int, frame: Any) -> None:
    raise KeyboardInterrupt


def dispatch(argv: list[str]) -> int:
    """Choose the verb."""
    from runner.run.show import help_text, is_help

    verbs = {
        "demo": demo_command,
        "list": list_command,
        "plan": plan_command,
        "show": show_command,
        "report": report_command,
        "why": why_command,
        "data": data_command,
        "store": store_command,
        "verify": verify_command,
        "diagnose": diagnose_command,
        "audit": audit_command,
    }
    verb, rest = (argv[0], argv[1:]) if argv and argv[0] in verbs else ("", argv)
    if not argv or argv[0] == "help" or is_help(rest):
        print(help_text(verb, rest))
        return 0
    if argv[0] == "--version":
        from runner import __version__

        print(f"hess-run {__version__}")
        return 0
    return verbs[verb](rest) if verb else run_command(argv)


def run_command(argv: list[str]) -> int:
    """Measure, then report; or, with one of Hydra's options that show something, show it."""
    from runner.run.execute import end_on_sigterm
    from runner.run.handover import needs_no_job, shown_words, sweep_folder
    from runner.run.listing import announce
    from runner.run.reports import read_jobs
    from runner.run.requirements import check_data
    from runner.store.outputs import claim_outputs

    if needs_no_job(argv):
        sys.argv = [sys.argv[0], *argv]
        return _hand_to_hydra([])
    arguments, jobs = read_jobs(argv)
    if arguments.asks:
        sys.argv = [sys.argv[0], *arguments.argv(shown_words(arguments))]
    else:
        for experiment in {id(job.experiment): job.experiment for job in jobs}.values():
            check_data(experiment)
        for outputs in {job.outputs for job in jobs}:
            claim_outputs(outputs)
        end_on_sigterm()
        print("\n".join(announce(jobs)), file=sys.stderr, flush=True)
        sys.argv = [sys.argv[0], *arguments.argv(), *sweep_folder(arguments, jobs)]
    return _hand_to_hydra(jobs)


def _hand_to_hydra(jobs: Sequence[Any]) -> int:
    """Hydra's application on sys.argv. What ends it early gets one line, and the cells that are stored their report."""
    from runner.run import config, reports
    from runner.run.handover import RESTARTS, lost_worker, ran_full

    for restart in range(1, RESTARTS + 2):
        try:
            return _application()
        except SettingError:
            raise
        except Exception as error:
            if config.was_interrupted(error):
                raise KeyboardInterrupt from error
            if FULL_ERROR:
                raise
            reason = config.short(f"{type(error).__name__}: {error}", 300)
            if jobs and restart <= RESTARTS and lost_worker(error):
                endings.say(
                    f"a process of the launcher ended early ({reason}); starting what is not stored again ({restart})"
                )
                continue
            if ran_full(error):
                return endings.no_space(error)
            endings.say(
                f"the run ended early ({reason}); finished cells are stored. Run the same command again to go on."
            )
            if jobs and not _ENDING["reported"]:
                reports.report_jobs(jobs)
            return 1
    raise AssertionError("the last start returns")


def _application() -> int:
    """One start of Hydra's application; the status that its report asks for. Raises whatever ends it early."""
    import hydra

    from runner.run import config

    _ENDING.update(status=0, reported=False)
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra would print its own pages of what went wrong, and exit
    try:
        hydra.main(version_base="1.3", config_path=str(config.sources.CONF), config_name="config")(run_job)()
    finally:
        if not FULL_ERROR:
            os.environ.pop("HYDRA_FULL_ERROR", None)
    return int(_ENDING["status"])


def run_job(cfg: Any) -> None:
    """One job, in this process or in one that a Hydra launcher made."""
    from hydra.core.hydra_config import HydraConfig

    from runner.run import config
    from runner.run.execute import run
    from runner.run.handover import take_folders

    take_folders(HydraConfig.get().runtime.config_sources)
    job = config.build_job(list(HydraConfig.get().overrides.task))
    outcome = run(job)
    counts = f"{len(outcome.measured)} measured, {len(outcome.stored)} were stored, {len(outcome.failed)} failed"
    print(f"{job.name} seed={job.seed}: {counts}", flush=True)
    if outcome.interrupted:
        raise KeyboardInterrupt


class ReportAfterRun:
    """Hydra callback: the report of everything that a run or multirun touched, once, at its end.

    Not derived from Hydra's class, which would cost every listing the import of Hydra.
    """

    def __getattr__(self, name: str) -> Callable[..., None]:
        if not name.startswith("on_"):
            raise AttributeError(name)
        return lambda **_: None

    def on_run_end(self, config: Any, **_: Any) -> None:
        self._report(list(config.hydra.overrides.task), multirun=False)

    def on_multirun_end(self, config: Any, **_: Any) -> None:
        self._report(list(config.hydra.overrides.task), multirun=True)

    def _report(self, overrides: list[str], multirun: bool) -> None:
        from runner.run import config, reports
        from runner.run.execute import was_terminated

        def action() -> int:
            jobs = config.build_jobs(config.Arguments(tuple(overrides), multirun))
            complete = reports.report_jobs(jobs)
            return 0 if complete else 1

        try:
            status = endings.guarded(action)
        except Exception as error:  # Hydra would turn it into a warning; the cells are safe, the report is not there
            if was_terminated():  # swallowed by an import, say, which then stands half done
                raise KeyboardInterrupt from error
            if FULL_ERROR:
                traceback.print_exc()
            failure = f"{type(error).__name__}: {error}"
            endings.say(f"the report failed ({failure}); all cells are stored, see hess-run report")
            status = 1
        _ENDING["reported"] = True
        _ENDING["status"] = max(_ENDING["status"], status)


def report_command(argv: list[str]) -> int:
    """Report from the store."""
    from runner.run.reports import report_command as command

    return command(argv)


def demo_command(argv: list[str]) -> int:
    """One cell, measured now."""
    from runner.run.demo import demo

    return demo(argv)


def why_command(argv: list[str]) -> int:
    """Where an artifact came from."""
    from runner.run.why import why

    print("\n".join(why(argv)))
    return 0


def show_command(argv: list[str]) -> int:
    """What an experiment, or a choice of a group, can be set to."""
    from runner.run.show import show

    print(show(argv))
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
    from runner.run.reports import read_jobs

    _, jobs = read_jobs(argv)
    print("\n".join(plan(jobs)))
    return 0


def data_command(argv: list[str]) -> int:
    """Fetch or verify a data set."""
    from runner.run.requirements import data

    return data(argv)


def store_command(argv: list[str]) -> int:
    """Examine every stored cell."""
    from runner.run.inspect import check_store

    return check_store(argv)


def verify_command(argv: list[str]) -> int:
    """Measure stored cells again and compare."""
    from runner.run.inspect import sample_and_tolerance, verify_jobs
    from runner.run.reports import read_jobs

    sample, tolerance, words = sample_and_tolerance(argv)
    return verify_jobs(read_jobs(words)[1], sample, tolerance)


def audit_command(argv: list[str]) -> int:
    """One clause of a paper: printed, corrected, reference."""
    from runner.run import config

    audit = getattr(config.experiment_class("paper_audit"), "audit", None)
    if audit is None:
        raise SettingError("audit: expected conf/experiment/paper_audit.yaml to name an experiment that audits papers")
    return int(audit(argv))


def diagnose_command(argv: list[str]) -> int:
    """Diagnose the user's own network."""
    from runner.diagnose.command import main as diagnose

    return diagnose(argv)


if __name__ == "__main__":
    from runner.cli import main as run_main  # the callback knows this module by its name, not as __main__

    run_main()
