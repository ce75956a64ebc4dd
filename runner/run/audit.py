"""`hess-run audit`: one clause of a paper."""

from __future__ import annotations

from runner.contract import SettingError
from runner.run.command_line import Call
from runner.run.config.compose import experiment_class


def audit_command(call: Call) -> int:
    """hess-run audit PLACE

    One clause of a paper in five lines: its place and class, an instance, the printed formula, the
    correct one, and the reference it was compared with; then, of an error, its consequence and the
    authors' view. PLACE is the id of a clause, or of an error as the pages of errata number it; a
    paper's name lists its places.

      hess-run audit attention.d.1
      hess-run audit dag.C5
      hess-run audit hsr
    """
    audit = getattr(experiment_class("paper_audit"), "audit", None)
    if audit is None:
        raise SettingError(
            "audit: expected conf/experiment/paper_audit.yaml to name an experiment that "
            "audits papers"
        )
    return int(audit(call.words))
