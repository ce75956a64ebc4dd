"""Options of a command line, those of Hydra among them, and what is said of unknown ones."""

from __future__ import annotations

import argparse
import re
from collections.abc import Collection, Sequence
from typing import NoReturn

from runner.contract import SettingError, did_you_mean, short

CLOSED = ("--config-path", "-cp", "--config-name", "-cn", "--experimental-rerun")
"""Options of Hydra that cannot be set."""
INFO = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")
COMPLETION = 'eval "$(hess-run --shell-completion install=bash)"'
SWITCHES = (
    ("-h", "--help"),
    ("-m", "--multirun"),
    ("-q", "--quiet"),
    ("-sc", "--shell-completion"),
    ("--hydra-help",),
    ("--json",),
    ("--version",),
)


class _Parser(argparse.ArgumentParser):
    """Refuses a command line with one line."""

    def error(self, message: str) -> NoReturn:
        raise SettingError(f"{short(message, 160)}; see hess-run --help")


def read_options(argv: Sequence[str], keys: Collection[str]) -> argparse.Namespace:
    """The options of a command line, and its other words as `words`. keys: those that are written
    without dashes. Raises SettingError."""
    parser = _Parser(prog="hess-run", add_help=False, allow_abbrev=False)
    for names in SWITCHES:
        parser.add_argument(*names, action="store_true")
    parser.add_argument("--cfg", "-c", choices=("job", "hydra", "all"))
    parser.add_argument("--info", "-i", choices=INFO, nargs="?", const="all")
    parser.add_argument("--config-dir", "-cd")
    parser.add_argument("words", nargs="*")
    options, unknown = parser.parse_known_intermixed_args(list(argv))
    if unknown:
        raise SettingError(_unknown(unknown[0], keys, list(parser._option_string_actions)))
    return options


def _unknown(option: str, keys: Collection[str], known: Sequence[str]) -> str:
    """What is said of an option that there is not."""
    flag, _, value = option.partition("=")
    name = flag.lstrip("-")
    if flag in CLOSED:
        return f"{flag} cannot be set; add a folder of your own with --config-dir DIR"
    if name in ("pdf", "svg"):
        command = f"hess-run report experiment=NAME figures={name}"
        return f"--{name}: write figures={name}, as in {command}"
    if name in keys:
        value = value or ("true" if name in ("force", "repair") else "VALUE")
        return f"{short(option)}: write {name}={short(value)}, without dashes"
    hint = did_you_mean(option, known) if option.startswith("--") else ""
    return f"unrecognized arguments: {short(option)}{hint}; see hess-run --help"


def shown_option(options: argparse.Namespace) -> list[str]:
    """One of Hydra's options that show something, as Hydra takes it. Raises SettingError."""
    if options.info and (options.cfg or options.multirun):
        raise SettingError("--info: expected neither --cfg nor --multirun next to it")
    if options.shell_completion:
        if not options.words or not re.match(r"(install|uninstall|query)=", options.words[0]):
            raise SettingError(
                f"--shell-completion: expected install=bash, fish or zsh, as in {COMPLETION}"
            )
        return ["--shell-completion"]
    if options.hydra_help:
        return ["--hydra-help"]
    if options.cfg:
        return ["--cfg", options.cfg]
    if not options.info:
        return []
    named = any(word.startswith("experiment=") for word in options.words)
    if options.info != "plugins" and not named:
        raise SettingError(
            "--info: expected experiment=NAME as well, found none; "
            "--info plugins lists Hydra's plugins without one"
        )
    return ["--info", options.info]
