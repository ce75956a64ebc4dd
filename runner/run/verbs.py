"""The verbs of the command line but for the run itself; what each needs is imported when it is called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from runner.contract import SettingError


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


def results_command(argv: list[str]) -> int:
    """Tables of stored cells, with rows and columns."""
    from runner.run.results import results_lines

    words = [word for word in argv if not word.startswith("outputs=") and word != "--json"]
    if len(words) > 1:
        raise SettingError(f"results: expected [EXPERIMENT] [outputs=PATH] [--json], found {' '.join(words)}")
    print("\n".join(results_lines("".join(words), _outputs(argv), "--json" in argv)))
    return 0


def publish_command(argv: list[str]) -> int:
    """Merge finished cells and their report into the published results."""
    from runner.run.publish import publish

    words = [word for word in argv if not word.startswith(("outputs=", "show="))]
    if not words or "=" in words[0]:
        raise SettingError("publish: expected EXPERIMENT [key=value ...] [outputs=PATH] [show=true]")
    print("\n".join(publish(words[0], words[1:], _outputs(argv), "show=true" in argv)))
    return 0


def _outputs(argv: list[str]) -> Path:
    return Path(next((word.partition("=")[2] for word in argv if word.startswith("outputs=")), "outputs"))


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


VERBS: Mapping[str, Callable[[list[str]], int]] = {
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
    "results": results_command,
    "publish": publish_command,
}
"""Verb -> what it does with the words behind it; its exit status."""
