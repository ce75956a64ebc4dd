"""Help: of the command, of each verb, and of what an experiment or a choice of a group can be set to."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

from runner.contract import GROUPS, SettingError
from runner.run import reading, sources
from runner.run.config import preview
from runner.run.sources import comments, nearest, short
from runner.run.targets import hints, takes
from runner.run.typed import readable

HELP = """\
hess-run: experiments on the Hessian of neural networks, from five papers, with one verdict for each number.

  hess-run demo                                  one cell measured now, its figure, and what the paper says
  hess-run experiment=NAME [key=value ...]       measure what is not stored yet, then report
  hess-run -m experiment=NAME seed=42,43,44      sweep over seeds or any key (also seed=range(42,47), a=1,2 b=3,4)
  hess-run list                                  experiments, paper, cells, stored cells, predicted cost
  hess-run show NAME                             what an experiment can be set to: fields, defaults, groups, kinds
  hess-run plan experiment=NAME [key=value ...]  what would run, what is stored, time and memory; runs nothing
  hess-run report [experiment=NAME ...]          tables, figures, statistics, claims and scorecard from the store
  hess-run why FILE[:LINE] | ANCHOR              which cells, commits, CPU and command a figure or a row came from
  hess-run data fetch|verify NAME                download an official archive (resumes, checks), or check it
  hess-run store check                           is everything that is stored whole
  hess-run verify experiment=NAME                measure a sample of the stored cells again and compare
  hess-run audit PLACE                           one formula of a paper: printed, right, reference
  hess-run diagnose target=FILE.py:FUNCTION      the same engine on a network of your own
  hess-run VERB --help                           more on each of them

keys of every run (= default)
  seed=42  profile=paper|quick  outputs=outputs  jobs=1 (processes)  threads=1  device=cpu  force=false
keys of an experiment: the fields of conf/experiment/NAME.yaml, by name (hidden=3, protocol=printed, 'depth=[8,10]'),
  and of its groups by path (training.steps=5000, dataset.train=100); another kind: dataset=surrogate

Hydra's options: -m, --cfg job|hydra|all, --info, --config-dir DIR (experiments and kinds of your own),
  --shell-completion, --hydra-help; 'experiment=glob(hsr_*)' sweeps over names.
scale out: -m hydra/launcher=joblib (this machine), submitit_slurm, ray; one store, each cell measured once.
stop with Ctrl-C and run the same command again: finished cells are kept.

experiments: {names}"""

VERBS = {
    "demo": """\
hess-run demo [outputs=PATH]

Measures one cell of ws_bound at the paper's protocol (a few seconds, no data set), draws its figure into PATH (default
outputs/demo) and prints what the paper says beside what came out. A second call only draws.""",
    "why": """\
hess-run why FILE[:LINE] | ANCHOR [outputs=PATH]

Where a figure, a table, a line of a table (the head is line 1), a page or a stored cell came from: cells with their
parameters and seeds, commits, processors, times, and the commands that measure and draw it again. A figure that was
copied elsewhere is looked up below PATH (default outputs) by what it says of itself.

  hess-run why outputs/ws_bound/figures/fig02_bound_and_eigenvalue.png
  hess-run why outputs/ws_bound/scorecard.csv:4
  hess-run why dag.T5.gelu.final.gap_global           (the # of a row in the pages)""",
    "list": """\
hess-run list [outputs=PATH]

One line for every experiment: paper, cells of one seed, cells stored below PATH (default outputs), predicted processor
time of one seed, and what of the paper it reproduces. Imports only what --config-dir and HESS_MODULES allow.

  hess-run list --config-dir my/conf             with experiments of your own""",
    "plan": """\
hess-run [-m] plan experiment=NAME [key=value ...]

Every cell that the same command without `plan` would measure: its id, predicted time and memory, and whether it is
stored. Checks everything that a run checks before its first cell, the files of the data set apart; writes nothing.

  hess-run plan -m experiment=ws_bound 'seed=range(42,47)'""",
    "report": """\
hess-run report [experiment=NAME] [key=value ...] [figure=NAME] [figures=pdf|svg]

Tables, figures, statistics, claims, scorecard and pages from stored cells, of one set of settings or, without
experiment, of every experiment that has any. Measures nothing, and leaves what is up to date as it is.
figure: draw that one anew; pdf: all figures as PDF, too.

  hess-run report                                everything below outputs/
  hess-run report experiment=ws_bound outputs=outputs/run""",
    "show": """\
hess-run show NAME        an experiment: its fields (type, default, choices, meaning) and the kinds it takes
hess-run show GROUP=NAME  a choice of dataset, model, metric or training: its fields

The meaning and the place in the paper are the comments of the YAML file.

  hess-run show exp1_resonance
  hess-run show model=bottleneck_mlp""",
    "store": """\
hess-run store check [outputs=PATH] [repair=true]

Examines every stored cell: cell.json, id, names, and the SHA-256 of each table. Damaged cells are named, one line
each; repair=true moves them to <experiment>/quarantine/, and the next run measures them again. Exit status 1 if any is.

  hess-run store check outputs=outputs/run""",
    "audit": """\
hess-run audit PLACE

One clause of a paper in five lines: where it stands and its class, an instance, what is printed, what is right, and the
reference it was held against. PLACE is the id of a clause or of a root cause; a paper's name lists its places.

  hess-run audit attention.d.1
  hess-run audit hsr""",
    "verify": """\
hess-run [-m] verify experiment=NAME [key=value ...] [sample=3] [tolerance=1e-6]

Measures a random sample of the stored cells again, apart from the store, and holds every table against the stored one.
Names the first field that differs by more than the tolerance, relative; sample=0 takes all cells. Exit status 1 if any
differs. Times (columns of seconds) are not compared.

  hess-run verify experiment=scalar_spectrum sample=5""",
    "data": """\
hess-run data fetch NAME  download an official archive: resumes, checks its published sum, unpacks expected files only
hess-run data verify NAME check the files and labels that are there

NAME: cifar10 or cifar100. The folder is $HESS_DATA, else data/ in the current folder.""",
}


def is_help(words: Sequence[str]) -> bool:
    """Whether the user asks for help, wherever the option stands."""
    return any(word in ("--help", "-h") for word in words)


def help_text(verb: str, words: Sequence[str]) -> str:
    """Help of a verb; of an experiment, where one is named; of the command otherwise."""
    if verb == "diagnose":
        from runner.diagnose.command import main as diagnose

        lines: list[str] = []
        diagnose(["--help"], lines.append)
        return "\n".join(lines)
    if verb:
        return VERBS[verb]
    names = [word.partition("=")[2] for word in words if word.startswith("experiment=")]
    if names:
        return show(names[:1])
    return HELP.format(names=", ".join(reading.experiment_names()))


def show(words: Sequence[str]) -> str:
    """The page of an experiment, or of GROUP=NAME. Raises SettingError for anything else."""
    words = list(words)
    for option in ("--config-dir", "-cd"):
        if option in words[:-1]:
            at = words.index(option)
            sources.add(words[at + 1])
            del words[at : at + 2]
    words = [word.removeprefix("experiment=") for word in words]
    if len(words) != 1:
        known = ", ".join(reading.experiment_names())
        raise SettingError(
            f"show: expected one NAME or GROUP=NAME, found {short(' '.join(words)) or 'none'}; known: {known}"
        )
    group, equals, name = words[0].partition("=")
    if equals:
        if group not in GROUPS:
            raise SettingError(
                f"show: {short(group)} is not a group{nearest(group, GROUPS)}; known: {', '.join(GROUPS)}"
            )
        return "\n".join(_kind_lines(group, name))
    return "\n".join(_experiment_lines(words[0]))


def _experiment_lines(name: str) -> list[str]:
    file = reading.experiment_file(name)
    experiment = preview(name)
    cls = type(experiment)
    lines = [f"{name}: {experiment.title}"]
    if experiment.paper:
        lines.append(f"paper: {experiment.paper}; reproduces {experiment.reproduces}")
    head = [line.removeprefix("#").strip() for line in file.path.read_text().splitlines()[1:] if line.startswith("#")]
    lines += ["", *head] if head else []
    meaning = comments(file.path)
    own = reading.experiment_fields(name)
    lines += ["", "fields (= default)"]
    rows = [(key, _type(cls, f), _value(getattr(experiment, key)), _notes(f, meaning)) for key, f in own.items()]
    lines += _table(rows)
    for group in takes(cls):
        chosen = file.choices.get(group, "none")
        lines += ["", f"{group} = {chosen}; takes {', '.join(reading.fitting(name, group))}"]
        settings = getattr(experiment, group)
        meaning = comments(sources.find(group, chosen)) if chosen != "none" else {}
        meaning = {**meaning, **{k: v for k, v in comments(file.path).items() if k not in own}}
        lines += _table(_rows(settings, meaning, group))
    quick = file.body.get("profiles", {}).get("quick", [])
    lines += [
        "",
        f"profile=quick: {' '.join(map(str, quick)) or 'the same'}",
        f"devices: {', '.join(experiment.devices)}",
    ]
    return [line.rstrip() for line in lines]


def _kind_lines(group: str, name: str) -> list[str]:
    path = sources.find(group, name)
    cls: Any = reading.kind_class(group, name)
    head = [line.removeprefix("#").strip() for line in path.read_text().splitlines() if line.startswith("#")]
    node, meaning = reading.load(path), comments(path)
    rows = []
    for f in dataclasses.fields(cls):
        if f.name != "kind":
            value = _value(node.get(f.name, _default(f)))
            note = _joined(_limits(f), meaning.get(f.name, ""))
            rows.append((f"{group}.{f.name}", readable(hints(cls)[f.name]), value, note))
    users = []
    for experiment in reading.experiment_names():
        try:
            users += [experiment] if name in reading.fitting(experiment, group) else []
        except SettingError:  # a file that cannot be read takes nothing
            continue
    table = _table(rows) or ["  no settings of its own"]
    return [f"{group}={name}", *head, "", *table, "", f"taken by: {', '.join(users) or 'none'}"]


def _default(f: dataclasses.Field[Any]) -> Any:
    return f.default_factory() if f.default_factory is not dataclasses.MISSING else f.default


def _rows(settings: Any, meaning: Mapping[str, str], group: str) -> list[tuple[str, str, str, str]]:
    rows = []
    cls: Any = type(settings)
    for f in dataclasses.fields(settings):
        if f.name != "kind":
            note = _joined(_limits(f), meaning.get(f.name, ""))
            value, kind = _value(getattr(settings, f.name)), readable(hints(cls)[f.name])
            rows.append((f"{group}.{f.name}", kind, value, note))
    return rows


def _type(cls: type, f: dataclasses.Field[Any]) -> str:
    return f"{readable(hints(cls)[f.name])}{', one cell each' if f.metadata.get('grid') else ''}"


def _value(value: Any) -> str:
    text = {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value).replace("'", "")
    return short(text, 70)


def _limits(f: dataclasses.Field[Any]) -> str:
    """The declared limits of a field, as text."""
    return str(f.metadata.get("limits", ""))


def _notes(f: dataclasses.Field[Any], meaning: Mapping[str, str]) -> str:
    note = _joined(_limits(f), meaning.get(f.name, ""))
    return f"{note} [report only]" if f.metadata.get("report") else note


def _joined(*parts: str) -> str:
    return "; ".join(part for part in parts if part)


def _table(rows: Sequence[tuple[str, str, str, str]]) -> list[str]:
    """Two lines a field where one is too long: name, type and default, then what it means."""
    width = max((len(row[0]) for row in rows), default=0)
    room = _columns()
    lines = []
    for name, kind, value, note in rows:
        line = f"  {name.ljust(width)}  {kind} = {value}"
        if note and len(line) + len(note) + 4 <= room:
            line, note = f"{line}  # {note}", ""
        lines.append(line)
        lines += [f"  {' ' * width}  # {note}"] if note else []
    return lines


def _columns() -> int:
    try:
        return max(80, os.get_terminal_size().columns)
    except OSError:
        return 120
