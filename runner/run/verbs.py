"""The verbs of the command line: what each does, which words it takes, and its help."""

from __future__ import annotations

from collections.abc import Mapping

from runner.contract import SettingError
from runner.run.call import Call, Verb


def diagnose_command(call: Call) -> int:
    """Diagnose the user's own network."""
    from runner.diagnose.command import help_text as usage
    from runner.diagnose.command import main

    if call.settings:
        return main(call.settings)
    print(usage())
    return 0


def audit_command(call: Call) -> int:
    """One clause of a paper: printed, corrected, reference."""
    from runner.run.config import experiment_class

    audit = getattr(experiment_class("paper_audit"), "audit", None)
    if audit is None:
        raise SettingError("audit: expected conf/experiment/paper_audit.yaml to name an experiment that audits papers")
    return int(audit(call.words))


def help_text(call: Call) -> str:
    """Help of a verb; of an experiment, where one is named; of the command otherwise."""
    from runner.run.config import experiment_names
    from runner.run.show import show

    if call.verb == "diagnose":
        from runner.diagnose.command import help_text as diagnose

        return diagnose()
    if call.verb:
        return VERBS[call.verb].help
    names = [word.partition("=")[2] for word in call.settings if word.startswith("experiment=")]
    return show(names[0]) if names else HELP.format(names=", ".join(experiment_names()))


HELP = """\
hess-run: experiments on the Hessian of neural networks, from five papers, with one verdict for each number.

  hess-run demo                                  one published formula checked now: both values, verdict, figure
  hess-run experiment=NAME [key=value ...]       measure what is not stored yet, then report
  hess-run -m experiment=NAME seed=42,43,44      sweep over seeds or any key (also seed=range(42,47), a=1,2 b=3,4)
  hess-run list                                  experiments, paper, cells, stored cells, predicted cost
  hess-run show NAME                             what an experiment can be set to: fields, defaults, groups, kinds
  hess-run plan experiment=NAME [key=value ...]  what would run, what is stored, time and memory; runs nothing
  hess-run report [experiment=NAME ...]          tables, figures, statistics, claims and scorecard from the store
  hess-run why FILE[:LINE] | ANCHOR              which cells, commits, CPU and command a figure or a row came from
  hess-run open [NAME]                           the page of an experiment, or all of them, in a browser
  hess-run site                                  all pages as one folder and one zip file
  hess-run data list|fetch|verify [NAME]         what is there; download an official archive; check it
  hess-run store check                           is everything that is stored whole
  hess-run verify experiment=NAME                measure a sample of the stored cells again and compare
  hess-run audit PLACE                           one formula of a paper: printed, right, reference
  hess-run diagnose target=FILE.py:FUNCTION      the same engine on a network of your own
  hess-run VERB --help                           more on each of them

keys of every run (= default)
  seed=42  profile=paper|quick  outputs=outputs  jobs=1 (processes)  threads=1  device=cpu  force=false
keys of an experiment: the fields of conf/experiment/NAME.yaml, by name (hidden=3, protocol=printed, 'depth=[8,10]'),
  and of its groups by path (training.steps=5000, dataset.train=100); another kind: dataset=surrogate

Hydra's options: -m, --config-dir DIR (experiments and kinds of your own), --hydra-help, --info plugins;
  with experiment=NAME: --cfg job|hydra|all, --info; 'experiment=glob(hsr_*)' sweeps over names.
completion in this shell: eval "$(hess-run --shell-completion install=bash)"
of this program: -q (no output but errors), --json (list, plan, why, store, verify, results)
scale out: -m hydra/launcher=joblib (this machine), submitit_slurm, ray; one store, each cell measured once.
stop with Ctrl-C and run the same command again: finished cells are kept.

experiments: {names}"""

VERBS: Mapping[str, Verb] = {
    "": Verb("runner.run.command:run_command", HELP, settings=True),
    "demo": Verb(
        "runner.run.demo:demo_command",
        """\
hess-run demo [outputs=PATH]

Measures ten cells of scalar_spectrum (a few seconds, no data set): every Hessian eigenvalue of a ReLU network by the
paper's formula and by automatic differentiation. Prints the claim, the published and our values and the verdict, and
draws the figure into PATH (default outputs/demo). A second call only draws.""",
        keys=("outputs",),
    ),
    "list": Verb(
        "runner.run.listing:list_command",
        """\
hess-run list [PATTERN] [outputs=PATH] [--json]

One line for every experiment: paper, cells of one seed, cells stored below PATH (default outputs), predicted processor
time of one seed, and what of the paper it reproduces. PATTERN: a part of the name. Imports only what --config-dir and
HESS_MODULES allow.

  hess-run list --config-dir my/conf             with experiments of your own""",
        words="[PATTERN]",
        keys=("outputs",),
        json=True,
    ),
    "plan": Verb(
        "runner.run.listing:plan_command",
        """\
hess-run [-m] plan experiment=NAME [key=value ...] [--json]

Every cell that the same command without `plan` would measure: its id, predicted time and memory, and whether it is
stored. Checks everything that a run checks before its first cell, the files of the data set apart; writes nothing.

  hess-run plan -m experiment=ws_bound 'seed=range(42,47)'""",
        settings=True,
        json=True,
    ),
    "show": Verb(
        "runner.run.show:show_command",
        """\
hess-run show NAME        an experiment: its fields (type, default, choices, meaning) and the kinds it takes
hess-run show GROUP=NAME  a choice of dataset, model, metric or training: its fields

The meaning and the place in the paper are the comments of the YAML file.

  hess-run show exp1_resonance
  hess-run show model=bottleneck_mlp""",
        words="NAME",
    ),
    "report": Verb(
        "runner.run.reports:report_command",
        """\
hess-run report [experiment=NAME] [key=value ...] [figure=NAME] [figures=pdf|svg]

Tables, figures, statistics, claims, scorecard and pages from stored cells, of one set of settings or, without
experiment, of every experiment that has any. Measures nothing, and leaves what is up to date as it is.
figure: draw that one alone; figures: draw them as PDF or SVG, too.

  hess-run report                                everything below outputs/
  hess-run report experiment=ws_bound outputs=outputs/run""",
        keys=("figure", "figures"),
        settings=True,
    ),
    "why": Verb(
        "runner.run.why:why_command",
        """\
hess-run why FILE[:LINE] | ANCHOR [outputs=PATH] [--json]

Where a figure, a table, a line of a table (the head is line 1), a page or a stored cell came from: cells with their
parameters and seeds, commits, processors, times, and the commands that measure and draw it again. A figure that was
copied elsewhere is looked up below PATH (default outputs) by what it says of itself.

  hess-run why outputs/ws_bound/figures/fig02_bound_and_eigenvalue.png
  hess-run why outputs/ws_bound/scorecard.csv:4
  hess-run why dag.T5.gelu.final.gap_global           (the # of a row in the pages)
  hess-run why dag.T5                                 (its rows)""",
        words="FILE|ANCHOR",
        keys=("outputs",),
        json=True,
    ),
    "data": Verb(
        "runner.run.requirements:data_command",
        """\
hess-run data list         what is there, where it is looked for, sizes and orders of records
hess-run data fetch NAME  download an official archive: resumes, checks its published sum, unpacks expected files only
hess-run data verify NAME check the files and labels that are there

NAME: cifar10 or cifar100. The folder is $HESS_DATA, else data/ in the current folder.""",
        words="list|fetch|verify [NAME]",
    ),
    "store": Verb(
        "runner.run.inspect:store_command",
        """\
hess-run store check [outputs=PATH] [repair=true]

Examines every stored cell: cell.json, id, names, and the SHA-256 of each table. Damaged cells are named, one line
each; repair=true moves them to <experiment>/quarantine/, and the next run measures them again. Exit status 1 if any is.

  hess-run store check outputs=outputs/run""",
        words="check",
        keys=("outputs", "repair"),
        json=True,
    ),
    "verify": Verb(
        "runner.run.inspect:verify_command",
        """\
hess-run [-m] verify experiment=NAME [key=value ...] [sample=3] [tolerance=1e-6]

Measures a random sample of the stored cells again, apart from the store, and holds every table against the stored one.
Names the first field that differs by more than the tolerance, relative; sample=0 takes all cells. Exit status 1 if any
differs. Times (columns of seconds) are not compared.

  hess-run verify experiment=scalar_spectrum sample=5""",
        keys=("sample", "tolerance"),
        settings=True,
        json=True,
    ),
    "diagnose": Verb("runner.run.verbs:diagnose_command", settings=True),
    "audit": Verb(
        "runner.run.verbs:audit_command",
        """\
hess-run audit PLACE

One clause of a paper in five lines: where it stands and its class, an instance, what is printed, what is right, and the
reference it was held against. PLACE is the id of a clause or of a root cause; a paper's name lists its places.

  hess-run audit attention.d.1
  hess-run audit hsr""",
        words="PLACE",
    ),
    "open": Verb(
        "runner.run.pages:open_command",
        """\
hess-run open [NAME] [outputs=PATH]

Opens the page of an experiment in a browser, or the start page; prints where it is.""",
        words="[NAME]",
        keys=("outputs",),
    ),
    "site": Verb(
        "runner.run.pages:site_command",
        """\
hess-run site [to=DIR] [outputs=PATH]

Builds the complete static site (reports, pages, start page) into DIR (default: site) and into DIR.zip: the reports
below PATH, and the published ones of every other experiment. It needs no server and loads nothing from outside.""",
        keys=("to", "outputs"),
    ),
    "results": Verb(
        "runner.run.results:results_command",
        """\
hess-run results [EXPERIMENT] [outputs=PATH] [--json]

Tables of stored cells, published ones included: their rows, and of one experiment their columns.""",
        words="[EXPERIMENT]",
        keys=("outputs",),
        json=True,
    ),
    "publish": Verb(
        "runner.run.publish:publish_command",
        """\
hess-run publish EXPERIMENT [key=value ...] [outputs=PATH] [show=true]

For maintainers: merges finished cells and their report into the published results; show=true shows what would change.
""",
        words="EXPERIMENT",
        keys=("outputs", "show"),
        settings=True,
    ),
}
"""Verb -> what it is; "" is a run."""
