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
from typing import Any

from runner.contract import SettingError
from runner.run import endings
from runner.run.sources import FULL_ERROR

_ENDING: dict[str, Any] = {"status": 0, "reported": False}
"""What the report after a run leaves for its end: the exit status it asks for, and that it was made."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the command."""
    argv = list(sys.argv[1:] if arguments is None else arguments)
    if sys.platform == "win32":
        endings.say("Windows is not supported (locks and renames of its file systems differ); run it inside WSL 2")
        sys.exit(2)
    if arguments is None:
        signal.signal(signal.SIGTERM, _interrupt)  # from the first moment, while settings are read too
    sys.exit(endings.guarded(lambda: dispatch(argv)))


def _interrupt(number: int, frame: Any) -> None:
    raise KeyboardInterrupt


def dispatch(argv: list[str]) -> int:
    """Choose the verb."""
    from runner.run.show import help_text, is_help
    from runner.run.verbs import VERBS

    if argv[:1] == ["help"] and argv[1:2]:
        argv = [*argv[1:], "--help"]  # help plan is plan --help
    verb, rest = (argv[0], argv[1:]) if argv and argv[0] in VERBS else ("", argv)
    if not argv or argv[0] == "help" or is_help(rest):
        print(help_text(verb, rest))
        return 0
    if argv[0] == "--version":
        from runner import __version__

        print(f"hess-run {__version__}")
        return 0
    return VERBS[verb](rest) if verb else run_command(argv)


def run_command(argv: list[str]) -> int:
    """Measure, then report; or, with one of Hydra's options that show something, show it."""
    from runner.run.execute import end_on_sigterm, prepare
    from runner.run.handover import needs_no_job, shown_words, sweep_folder, without_stored, workers_of
    from runner.run.listing import survey
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
        lines, open_jobs = survey(jobs)
        print("\n".join(lines), file=sys.stderr, flush=True)
        at_work = {id(job) for job in open_jobs}
        for job in (job for job in jobs if id(job) not in at_work):
            print(f"{job.name} seed={job.seed}: 0 measured, {len(job.cells())} were stored, 0 failed", flush=True)
        if not open_jobs:
            return _report_status(lambda: jobs)
        if not any(word.startswith("hydra/launcher=") for word in arguments.overrides):
            prepare(workers_of(open_jobs[0]))
        left = without_stored(arguments, open_jobs)
        sys.argv = [sys.argv[0], *left.argv(), *sweep_folder(left, jobs)]
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
        from runner.run import config

        status = _report_status(lambda: config.build_jobs(config.Arguments(tuple(overrides), multirun)))
        _ENDING["reported"] = True
        _ENDING["status"] = max(_ENDING["status"], status)


def _report_status(jobs: Callable[[], Sequence[Any]]) -> int:
    """The exit status that the report of some jobs asks for; whatever ends it early is said in one line."""
    from runner.run import reports
    from runner.run.execute import dismiss, was_terminated

    try:
        dismiss()
        return endings.guarded(lambda: 0 if reports.report_jobs(jobs()) else 1)
    except Exception as error:  # Hydra would turn it into a warning; the cells are safe, the report is not there
        if was_terminated():  # swallowed by an import, say, which then stands half done
            raise KeyboardInterrupt from error
        if FULL_ERROR:
            traceback.print_exc()
        failure = f"{type(error).__name__}: {error}"
        endings.say(f"the report failed ({failure}); all cells are stored, see hess-run report")
        return 1


if __name__ == "__main__":
    from runner.cli import main as run_main  # the callback knows this module by its name, not as __main__

    run_main()
