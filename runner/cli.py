"""hess-run: demo, run, list, plan, show, report, why, data, store, verify, diagnose.

Exit status: 0 when all is well, 1 when a cell failed or the disk is full, 2 for a mistake in what was asked (one line
says which; nothing is written), 130 when interrupted.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from runner.contract.schema import SettingError

_ENDING: dict[str, Any] = {"status": 0, "reported": False}
"""What the report after a run leaves for its end: the exit status it asks for, and that it was made."""
_FULL_ERROR = os.environ.get("HYDRA_FULL_ERROR") == "1"


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the command."""
    argv = list(sys.argv[1:] if arguments is None else arguments)
    if arguments is None:
        signal.signal(signal.SIGTERM, _interrupt)  # from the first moment, while settings are read too
    sys.exit(_guarded(lambda: dispatch(argv)))


def _interrupt(number: int, frame: Any) -> None:
    raise KeyboardInterrupt


def _guarded(action: Callable[[], int]) -> int:
    """Run an action; turn what can go wrong into one line and an exit status."""
    try:
        return action()
    except SettingError as error:
        if _FULL_ERROR:
            raise
        _say(str(error))
        return 2
    except KeyboardInterrupt:
        return _interrupted()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        from runner.run.handover import ran_full
        from runner.run.sources import was_interrupted

        if was_interrupted(error):
            return _interrupted()
        if ran_full(error):
            return _no_space(error)
        raise


def _interrupted() -> int:
    _say("interrupted; finished cells are stored. Run the same command again to go on.")
    return 130


def _no_space(error: Exception) -> int:
    _say(f"no space left ({str(error).strip().splitlines()[-1]}); finished cells are stored. Free space and run again.")
    return 1


def _say(line: str) -> None:
    """One line on standard error."""
    print(f"hess-run: {' '.join(line.split())}", file=sys.stderr)


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


def _jobs(argv: Sequence[str]) -> tuple[Any, list[Any]]:
    """The parsed command line and every checked job of it."""
    from runner.run import config
    from runner.store.outputs import check_outputs

    arguments, jobs = config.read_command(argv)
    for outputs in {job.outputs for job in jobs}:
        try:
            check_outputs(outputs)
        except OSError as error:
            raise SettingError(f"outputs: {config.short(outputs)} cannot be used ({error.strerror})") from error
    for notice in dict.fromkeys(config.composition(words).notice for words in config.distinct(arguments)):
        if notice:
            _say(notice)
    return arguments, jobs


def run_command(argv: list[str]) -> int:
    """Measure, then report; or, with one of Hydra's options that show something, show it."""
    from runner.run.execute import end_on_sigterm
    from runner.run.handover import needs_no_job, shown_words, sweep_folder
    from runner.run.listing import announce
    from runner.run.requirements import check_data
    from runner.store.outputs import claim_outputs

    if needs_no_job(argv):
        sys.argv = [sys.argv[0], *argv]
        return _hand_to_hydra([])
    arguments, jobs = _jobs(argv)
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
    from runner.run import config
    from runner.run.handover import RESTARTS, lost_worker, ran_full

    for restart in range(1, RESTARTS + 2):
        try:
            return _application()
        except SettingError:
            raise
        except Exception as error:
            if config.was_interrupted(error):
                raise KeyboardInterrupt from error
            if _FULL_ERROR:
                raise
            reason = config.short(f"{type(error).__name__}: {error}", 300)
            if jobs and restart <= RESTARTS and lost_worker(error):
                _say(f"a process of the launcher ended early ({reason}); starting what is not stored again ({restart})")
                continue
            if ran_full(error):
                return _no_space(error)
            _say(f"the run ended early ({reason}); finished cells are stored. Run the same command again to go on.")
            if jobs and not _ENDING["reported"]:
                report_jobs(jobs)
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
        if not _FULL_ERROR:
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
        from runner.run.execute import was_terminated

        def action() -> int:
            jobs = config.build_jobs(config.Arguments(tuple(overrides), multirun))
            complete = report_jobs(jobs)
            return 0 if complete else 1

        try:
            status = _guarded(action)
        except Exception as error:  # Hydra would turn it into a warning; the cells are safe, the report is not there
            if was_terminated():  # swallowed by an import, say, which then stands half done
                raise KeyboardInterrupt from error
            if _FULL_ERROR:
                traceback.print_exc()
            _say(f"the report failed ({type(error).__name__}: {error}); all cells are stored, see hess-run report")
            status = 1
        _ENDING["reported"] = True
        _ENDING["status"] = max(_ENDING["status"], status)


def report_jobs(jobs: Sequence[Any], figure: str = "", pdf: bool = False) -> bool:
    """Report each set of settings among `jobs` once; True when none of their cells is missing."""
    from runner.report.collect import report
    from runner.report.write import write_overview
    from runner.run import config
    from runner.run.config import protocol

    groups: dict[tuple[Path, str], list[Any]] = {}
    for job in jobs:
        groups.setdefault((job.outputs, job.identity.key), []).append(job)
    for members in groups.values():
        files = [config.sources.CONF / "experiment" / f"{members[0].name}.yaml"]
        files = [path for path in files if path.is_file()]
        collection, lines = report(members, protocol, files=files, figure=figure, pdf=pdf, say=_progress)
        print("\n".join(lines))
        for cell in collection.failures:
            print(f"  failed: {cell}: {cell.error}", file=sys.stderr)
    for outputs in {job.outputs for job in jobs}:
        if outputs.is_dir():
            write_overview(outputs)
    return all(job.store.has(cell_id) for job in jobs for cell_id, _ in job.cells())


def _progress(line: str) -> None:
    """The step that a report is at, on a terminal: one line that the next one covers."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{line}", end="\r", file=sys.stderr, flush=True)


def report_command(argv: list[str]) -> int:
    """Report from the store: one experiment, or every one that has cells."""
    from runner.run import config

    own = {key: value for key, _, value in (word.partition("=") for word in argv) if key in ("figure", "pdf")}
    words = [word for word in argv if word.partition("=")[0] not in own]
    one = any(a.startswith("experiment=") for a in words)
    if own.get("figure") and not one:
        raise SettingError("figure: expected experiment=NAME beside it")
    if own.get("pdf", "false") not in ("true", "false"):
        raise SettingError(f"pdf: expected true or false, found {config.short(own['pdf'])}")
    if one:
        _, jobs = _jobs(words)
    else:
        jobs = [job for name in config.experiment_names() for job in _jobs([f"experiment={name}", *words])[1]]
        jobs = [job for job in jobs if job.store.names()]
        if not jobs:
            print("nothing is stored yet; begin with: hess-run experiment=NAME (see hess-run list)")
            return 0
    if not any(word.startswith("seed=") for word in words):
        jobs = [_at_a_stored_seed(job) for job in jobs]
    report_jobs(jobs, own.get("figure", ""), own.get("pdf") == "true")
    return 0


def _at_a_stored_seed(job: Any) -> Any:
    """The job at its seed, or at the first that is stored where its own is not: no seed was asked for."""
    key = job.identity.key
    seeds = {int(cell.meta["seed"]) for cell in job.store.all(tables=False) if cell.meta["settings_key"] == key}
    return dataclasses.replace(job, seed=min(seeds)) if seeds and job.seed not in seeds else job


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

    _, jobs = _jobs(argv)
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

    sample, tolerance, words = sample_and_tolerance(argv)
    return verify_jobs(_jobs(words)[1], sample, tolerance)


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
