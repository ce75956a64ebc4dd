"""hess-run: experiments on the Hessian of neural networks, from five papers; one verdict a number.

  hess-run demo                             one published formula checked now: verdict, figure
  hess-run experiment=NAME [key=value ...]  measure what is not stored yet, then report
  hess-run -m experiment=NAME seed=42,43    sweep over seeds or any key (also seed=range(42,47))
  hess-run list                             experiments, paper, cells, stored cells, predicted cost
  hess-run show NAME                        fields, defaults, groups and kinds of an experiment
  hess-run plan [experiment=NAME k=v ...]   what would run, what is stored; time, memory, disk
  hess-run report [experiment=NAME ...]     tables, figures, claims and scorecard from the store
  hess-run why FILE[:LINE] | ANCHOR         cells, commits, CPU and command behind a figure or a row
  hess-run results [NAME]                   tables of stored cells: rows, columns, how to load them
  hess-run open [NAME]                      the page of an experiment, or all of them, in a browser
  hess-run site                             all pages as one folder and one zip file
  hess-run data list|fetch|verify [NAME]    what is there; download an official archive; check it
  hess-run store check                      is everything that is stored whole
  hess-run verify experiment=NAME           measure a sample of the stored cells again and compare
  hess-run audit PLACE                      one formula of a paper: printed, right, reference
  hess-run diagnose target=FILE.py:FUNCTION the same engine on a network of your own
  hess-run publish NAME [show=true]         for maintainers: merge finished cells into the published
  hess-run VERB --help                      more on each of them

keys of every run (= default)
  seed=42  profile=paper|quick  outputs=outputs  jobs=1 (processes)  threads=1  device=cpu
  force=false
keys of an experiment: the fields of conf/experiment/NAME.yaml, by name (hidden=3, 'depth=[8,10]'),
  and of its groups by path (training.steps=5000); another kind: dataset=surrogate

Hydra's options: -m, --config-dir DIR (experiments and kinds of your own), --hydra-help,
  --info plugins; with experiment=NAME: --cfg job|hydra|all, --info;
  'experiment=glob(attention_*)' sweeps over names.
completion in this shell: eval "$(hess-run --shell-completion install=bash)"
of this program: -q (no output but errors), --json (list, plan, why, store, verify, results)
scale out: -m hydra/launcher=joblib (this machine), submitit_slurm, ray; one store, every cell once.
stop with Ctrl-C and run the same command again: finished cells are kept.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, NoReturn

from runner.contract import SettingError, short
from runner.run.config import overrides
from runner.run.console import did_you_mean, nearest


@dataclass(frozen=True)
class Call:
    """A parsed command line. words: positional words behind the verb; keys: key=value words that
    belong to the verb; settings: all other key=value words; shows: one of Hydra's options that show
    something instead of running."""

    verb: str
    words: tuple[str, ...] = ()
    keys: Mapping[str, str] = field(default_factory=dict)
    settings: tuple[str, ...] = ()
    multirun: bool = False
    config_dir: str = ""
    shows: tuple[str, ...] = ()
    json: bool = False
    quiet: bool = False
    help: bool = False
    version: bool = False

    def arguments(self) -> overrides.Arguments:
        """The part that describes jobs. Raises SettingError for words that no job has."""
        return overrides.arguments(self.settings, self.multirun, self.shows, self.config_dir)


@dataclass(frozen=True)
class Verb:
    """A verb. function: module:name of what it does with a Call; words: its positional words,
    optional ones in brackets; keys: its own key=value words; settings: whether it takes settings of
    a run as well; json: whether it has JSON output."""

    function: str
    words: str = ""
    keys: tuple[str, ...] = ()
    settings: bool = False
    json: bool = False

    @property
    def required(self) -> list[str]:
        """Positional words that must be given."""
        return [word for word in self.words.split() if not word.startswith("[")]

    def usage(self, name: str) -> str:
        """The words of the verb in one line."""
        keys = [f"[{key}=VALUE]" for key in self.keys]
        named = [] if self.words else ["experiment=NAME"]
        settings = [*named, "[key=value ...]"] if self.settings else []
        return " ".join([name, *self.words.split(), *settings, *keys])

    @property
    def command(self) -> Any:
        """What the verb does with a Call. Its docstring is the help of the verb."""
        module, _, name = self.function.partition(":")
        return getattr(import_module(module), name)

    def __call__(self, call: Call) -> int:
        """Do it; the exit status."""
        return int(self.command(call))


VERBS: Mapping[str, Verb] = {
    "": Verb("runner.run.command:run_command", settings=True),
    "demo": Verb("runner.run.checks:demo_command", keys=("outputs",)),
    "list": Verb("runner.run.listing:list_command", "[PATTERN]", keys=("outputs",), json=True),
    "plan": Verb("runner.run.listing:plan_command", settings=True, json=True),
    "show": Verb("runner.run.show:show_command", "NAME"),
    "report": Verb("runner.run.reports:report_command", keys=("figure", "figures"), settings=True),
    "why": Verb("runner.run.why:why_command", "FILE|ANCHOR", keys=("outputs",), json=True),
    "data": Verb("runner.run.checks:data_command", "list|fetch|verify [NAME]"),
    "store": Verb(
        "runner.run.checks:store_command", "check", keys=("outputs", "repair"), json=True
    ),
    "verify": Verb(
        "runner.run.checks:verify_command", keys=("sample", "tolerance"), settings=True, json=True
    ),
    "diagnose": Verb("runner.diagnose.command:diagnose_command", settings=True),
    "audit": Verb("runner.run.command_line:audit_command", "PLACE"),
    "open": Verb("runner.run.reports:open_command", "[NAME]", keys=("outputs",)),
    "site": Verb("runner.run.reports:site_command", keys=("to", "outputs", "figures")),
    "results": Verb(
        "runner.run.reports:results_command", "[EXPERIMENT]", keys=("outputs",), json=True
    ),
    "publish": Verb(
        "runner.run.publish:publish_command", "EXPERIMENT", keys=("outputs", "show"), settings=True
    ),
}
"""Verb -> what it is; "" is a run."""

CLOSED = ("--config-path", "-cp", "--config-name", "-cn", "--experimental-rerun")
INFO = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")
COMPLETION = 'eval "$(hess-run --shell-completion install=bash)"'


def parse(argv: Sequence[str]) -> Call:
    """Raises SettingError for options, verbs and words that do not exist or do not go together."""
    options = _options(argv)
    words = list(options.words)
    if options.version:
        return Call("", version=True)
    verb = words.pop(0) if words and words[0] in (*VERBS, "help") else ""
    if verb == "help" or options.help or not argv:
        named = next((word for word in words if word in VERBS), "") if verb == "help" else verb
        return Call(named, settings=tuple(words), config_dir=options.config_dir or "", help=True)
    shows = _shows(options)
    if shows and verb:
        raise SettingError(f"{shows[0]} goes with a run, not with {verb}")
    known = VERBS[verb]
    positional = tuple(word for word in words if verb and _is_positional(word, known))
    rest = [word for word in words if word not in positional]
    if not len(known.required) <= len(positional) <= len(known.words.split()):
        wanted = "key=value" if known.settings and not known.words else known.usage(verb)
        hint = (
            _meant(verb, positional[0]) if positional and not known.words and known.settings else ""
        )
        raise SettingError(
            f"{verb}: expected {wanted}, found {short(' '.join(positional)) or 'nothing'}{hint}"
        )
    keys = {
        key: value for key, _, value in (word.partition("=") for word in rest) if key in known.keys
    }
    settings = tuple(word for word in rest if word.partition("=")[0] not in keys)
    if settings and not known.settings:
        hint = did_you_mean(settings[0].partition("=")[0], known.keys)
        raise SettingError(
            f"{verb}: expected {known.usage(verb)}, found {short(settings[0])}{hint}"
        )
    if options.json and not known.json:
        others = ", ".join(other for other in VERBS if VERBS[other].json)
        raise SettingError(f"--json: {verb or 'a run'} has no JSON output; {others} have")
    if not verb:
        _check_first(settings)
    folder, shown = options.config_dir or "", tuple(shows)
    return Call(
        verb,
        positional,
        keys,
        settings,
        options.multirun,
        folder,
        shown,
        options.json,
        options.quiet,
    )


def _is_positional(word: str, verb: Verb) -> bool:
    key, equals, _ = word.partition("=")
    if verb.settings or not verb.words:
        return not equals and not word.startswith("~")
    return not equals or not (
        key in verb.keys or nearest(key, verb.keys)
    )  # model=mlp, a file with = in its name


def _meant(verb: str, word: str) -> str:
    """The key that a word without one was meant for."""
    from runner.run.config import experiment_names

    if verb == "diagnose":
        return f"; did you mean target={short(word)}?"
    return f"; did you mean experiment={word}?" if word in experiment_names() else ""


def _check_first(words: Sequence[str]) -> None:
    """Refuse a verb that does not exist, with the did_you_mean."""
    from runner.run.config import experiment_names

    first = words[0] if words else ""
    if "=" in first or first.startswith("~") or not first:
        return
    names = experiment_names()
    near = nearest(first, [*filter(None, VERBS), *names])
    if first == "run":
        hint = f"a run needs no verb: hess-run {' '.join(words[1:]) or 'experiment=NAME'}"
    elif near in names:
        hint = f"did you mean experiment={near}?"
    else:
        hint = f"did you mean {near}?" if near else "see hess-run --help"
    raise SettingError(f"expected key=value, found {short(repr(first))}; {short(hint, 160)}")


def _options(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="hess-run", add_help=False, allow_abbrev=False)
    for names in (
        ("-h", "--help"),
        ("-m", "--multirun"),
        ("-r", "--run"),
        ("--resolve",),
        ("--hydra-help",),
    ):
        parser.add_argument(*names, action="store_true")
    for names in (("--version",), ("--json",), ("-q", "--quiet")):
        parser.add_argument(*names, action="store_true")
    parser.add_argument("--cfg", "-c", choices=("job", "hydra", "all"))
    parser.add_argument("--info", "-i", choices=INFO, nargs="?", const="all")
    parser.add_argument("--shell-completion", "-sc", action="store_true")
    for names in (("--package", "-p"), ("--config-dir", "-cd")):
        parser.add_argument(*names)
    parser.add_argument("words", nargs="*")
    known = [flag for flag in parser._option_string_actions if flag.startswith("--")]

    def refuse(message: str) -> NoReturn:
        wrong = next(
            (
                word
                for word in argv
                if re.match(r"--?[a-z]", word) and word.partition("=")[0] not in known
            ),
            "",
        )
        name = wrong.partition("=")[0].lstrip("-")
        closed = next(
            (word.partition("=")[0] for word in argv if word.partition("=")[0] in CLOSED), ""
        )
        if closed:
            raise SettingError(
                f"{closed} cannot be set; add a folder of your own with --config-dir DIR"
            )
        if name in ("pdf", "svg"):
            raise SettingError(
                f"--{name}: write figures={name}, "
                f"as in hess-run report experiment=NAME figures={name}"
            )
        if name and any(name in (*verb.keys, *overrides.KNOWN_KEYS) for verb in VERBS.values()):
            value = wrong.partition("=")[2] or ("true" if name in ("force", "repair") else "VALUE")
            raise SettingError(f"{short(wrong)}: write {name}={short(value)}, without dashes")
        hint = did_you_mean(wrong, known) if wrong.startswith("--") else ""
        raise SettingError(f"{short(message, 160)}{hint}; see hess-run --help")

    parser.error = refuse  # type: ignore[method-assign]
    return parser.parse_intermixed_args(list(argv))


def _shows(options: argparse.Namespace) -> list[str]:
    """One of Hydra's options that show something, as Hydra takes it."""
    asked = [name for name in ("cfg", "info", "multirun", "run") if getattr(options, name)]
    if options.resolve and not options.cfg:
        raise SettingError("--resolve goes with --cfg")
    if len(asked) > 1 and not (options.multirun and len(asked) == 2 and options.cfg):
        raise SettingError(
            f"expected one of {', '.join('--' + name for name in asked)}, found all of them"
        )
    if options.shell_completion:
        if not re.match(r"(install|uninstall|query)=", (options.words or [""])[0]):
            raise SettingError(
                f"--shell-completion: expected install=bash, fish or zsh, as in {COMPLETION}"
            )
        return ["--shell-completion"]
    if options.hydra_help:
        return ["--hydra-help"]
    if options.cfg:
        package = ["--package", options.package] if options.package else []
        return ["--cfg", options.cfg, *(["--resolve"] if options.resolve else []), *package]
    if (
        options.info
        and options.info != "plugins"
        and not any(w.startswith("experiment=") for w in options.words)
    ):
        raise SettingError(
            "--info: expected experiment=NAME as well, found none; "
            "--info plugins lists Hydra's plugins without one"
        )
    return ["--info", options.info] if options.info else []


def audit_command(call: Call) -> int:
    """hess-run audit PLACE

    One clause of a paper in five lines: its place and class, an instance, the printed formula, the
    correct one, and the reference it was compared with. PLACE is the id of a clause or of a root
    cause; a paper's name lists its places.

      hess-run audit attention.d.1
      hess-run audit hsr
    """
    from runner.run.config import experiment_class

    audit = getattr(experiment_class("paper_audit"), "audit", None)
    if audit is None:
        raise SettingError(
            "audit: expected conf/experiment/paper_audit.yaml to name an experiment that "
            "audits papers"
        )
    return int(audit(call.words))
