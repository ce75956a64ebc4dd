"""What a report is: the paper's own run, or another one. Made once for each report, from the
paper's grid, settings, data and seeds and the profile; scorecard, claims, statistics, headings,
captions, console and pages take their words from it.

In the paper's scope verdicts read the cells of the paper's grid and seeds and nothing else.
Whatever else is stored is shown and not judged. In any other scope nothing on the paper is judged:
only statements that declare themselves independent of the protocol (theorems, formulas) keep a
verdict, and under another profile not even those.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from runner.report.departures import Departure
from runner.store.job import PAPER

NAMED = 2
"""Changed settings that a heading names; of more it gives the number."""


@dataclass(frozen=True, kw_only=True)
class Scope:
    """What a report is, as far as it decides words and verdicts; a part of its manifest.

    Parameters
    ----------
    paper
        Short name of the paper, "" for an experiment of no paper.
    profile
        Profile of the run; "paper" is the paper's protocol.
    stand_in
        The data set that random fields replace; "" where they replace none.
    departures
        Settings other than the paper's that change what is compared with it.
    restated
        Settings other than those of the YAML file that only figures and tables of this report read.
    seeds
        Seeds that verdicts read; empty for all.
    replication
        Seeds of the second verdict, declared before their runs; none until all are stored.
    shown
        What the report shows and does not judge: a phrase each.
    lost
        What verdicts lack of the paper's seeds and cells, a phrase each: with anything they are
        inconclusive.
    unmeasured
        What some of the paper's seeds lack, a phrase; "" for nothing. Verdicts that read it are
        inconclusive.
    """

    paper: str = ""
    profile: str = PAPER
    stand_in: str = ""
    departures: tuple[Departure, ...] = ()
    restated: tuple[Departure, ...] = ()
    seeds: tuple[int, ...] = ()
    replication: tuple[int, ...] = ()
    shown: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    unmeasured: str = ""

    @classmethod
    def of(cls, manifest: Mapping[str, Any]) -> Scope:
        """The scope that a manifest records; the paper's where it records none."""
        record = dict(manifest.get("scope") or {"paper": manifest.get("paper", "")})
        for key in ("departures", "restated"):
            record[key] = tuple(Departure(**item) for item in record.get(key, ()))
        for key in ("seeds", "replication", "shown", "lost"):
            record[key] = tuple(record.get(key, ()))
        return cls(**record)

    def record(self) -> dict[str, Any]:
        """The scope as a part of a manifest."""
        return asdict(self)

    @property
    def reason(self) -> str:
        """Why nothing on the paper is judged; "" in the paper's scope."""
        changes = []
        if self.profile != PAPER:
            changes.append(f"profile={self.profile}")
        if self.paper and self.stand_in:
            changes.append(f"random-field stand-in data instead of {self.stand_in}")
        if self.paper and self.profile == PAPER:
            changes += map(str, self.departures)
        protocol = "the paper's protocol" if self.paper else "the full protocol"
        return f"not {protocol}: {', '.join(changes)}" if changes else ""

    @property
    def is_papers(self) -> bool:
        """Whether verdicts are reached."""
        return not self.reason

    def keeps(self, independent: bool) -> bool:
        """Whether a statement keeps its verdict. independent: of the protocol."""
        return self.is_papers or (independent and self.profile == PAPER)

    @property
    def how(self) -> str:
        """How a run differs from the paper's, for a heading: "quick run", "on stand-in data", "with
        hidden=5"."""
        if self.profile != PAPER:
            return f"{self.profile} run"
        if self.stand_in and self.paper:
            return "on stand-in data"
        changes = [f"{d.setting}={d.found}" for d in (*self.departures, *self.restated)]
        if not changes:
            return ""
        if len(changes) > NAMED:
            return f"with {changes[0]} and {len(changes) - 1} more changed settings"
        return f"with {' and '.join(changes)}"

    def heading(self, place: str, title: str, outcome: str = "") -> str:
        """The line above a figure: a picture is copied alone.

        Parameters
        ----------
        place
            The paper's figure or table that it redraws, "" for none.
        title
            Title of the experiment.
        outcome
            Whether the place holds (`answers.tones.outcome_of`), "" where no row is judged.

        Examples
        --------
        >>> Scope(paper="DAG").heading("Fig. 3", "Depth", "holds: 2 of 2 judged rows agree")
        'Fig. 3 of the DAG paper, measured (holds: 2 of 2 judged rows agree)'
        >>> Scope(paper="DAG").heading("", "Depth")
        'DAG paper, further figure of “Depth”'
        >>> Scope(paper="DAG", profile="quick").heading("Fig. 3", "Depth")
        'as Fig. 3 of the DAG paper, quick run'
        """
        if self.paper and place:
            what = f"{place} of the {self.paper} paper"
            if self.how:
                return f"as {what}, {self.how}"
            return f"{what}, measured ({outcome})" if outcome else f"{what}, measured"
        source = "hess-run, figure"
        if self.paper:
            source = f"{self.paper} paper, further figure"
        return ", ".join(filter(None, (f"{source} of “{title}”", self.how)))

    @property
    def footer(self) -> str:
        """What stands below a figure that is not the paper's alone, or shows more."""
        words = []
        if self.stand_in:
            words.append("random-field stand-in data")
        if self.profile != PAPER:
            words.append(f"profile={self.profile}")
        if self.shown:
            words.append(f"not judged: {'; '.join(self.shown)}")
        return ", ".join(words)

    @property
    def not_judged(self) -> str:
        """The sentence that says why nothing is judged; "" in the paper's scope."""
        what = "nothing on the paper is judged" if self.paper else "nothing is judged"
        return f"{what}: {self.reason}" if self.reason else ""

    @property
    def shown_only(self) -> str:
        """The line on what is shown and not judged; "" for nothing."""
        return f"shown and not judged: {'; '.join(self.shown)}" if self.shown else ""

    @property
    def lines(self) -> list[str]:
        """What a reader of any part of the report has to know, a phrase each."""
        lines = [self.not_judged] if self.not_judged else []
        if self.lost:
            lines.append(f"nothing is decided: {'; '.join(self.lost)}")
        if self.unmeasured:
            lines.append(f"nothing that reads them is decided: {self.unmeasured}")
        if self.restated and self.is_papers:
            restated = ", ".join(map(str, self.restated))
            lines.append(f"figures and tables use {restated}; verdicts do not")
        if self.shown:
            lines.append(self.shown_only)
        further = sorted({*self.replication} - {*self.seeds})
        if further:
            seeds = f"seeds {further[0]} to {further[-1]}"
            lines.append(f"{seeds} are read by the second verdict alone")
        return lines

    @property
    def replicated(self) -> str:
        """Heading of the second verdict, "" where no seeds are declared for one."""
        return f"replication, {len(self.replication)} seeds" if self.replication else ""
