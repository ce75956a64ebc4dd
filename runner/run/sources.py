"""Where configuration files are: the project's folder, and one of the user's beside it.

conf/ holds one folder a group and one YAML file a choice. A folder given with --config-dir adds choices to them; its
files may not bear the name of one of the project's. HESS_CONF replaces the project's folder by a whole one.
"""

from __future__ import annotations

import os
import re
from difflib import get_close_matches
from pathlib import Path

from runner.contract import GROUPS, SettingError

CONF = Path(os.environ.get("HESS_CONF") or Path(__file__).resolve().parents[2] / "conf")
"""The project's configuration folder, or the one that HESS_CONF names."""
FULL_ERROR = os.environ.get("HYDRA_FULL_ERROR") == "1"
"""Whether the user asked for tracebacks; runs set the variable for Hydra, later."""
_ADDED: list[Path] = []
OPTIONS = (*GROUPS, "experiment", "profile")
"""Everything that has a folder of choices."""
TOP_LEVEL = ("seed", "threads", "device", "outputs", "jobs", "force")
"""Settings of a run."""
KNOWN_KEYS = (*TOP_LEVEL, *GROUPS, "profile", "experiment")
"""First parts of every key that a command line can set."""
RENAMED = {"metric=blocks": "inter_layer"}


def add(folder: str | Path) -> None:
    """Take choices from `folder` as well. Raises SettingError for no folder, and for names that the project has."""
    place = Path(folder).expanduser().absolute()
    if not place.is_dir():
        raise SettingError(f"--config-dir: expected a folder, found {place}")
    for group in OPTIONS:
        taken = _stems(place / group) & _stems(CONF / group)
        if taken and place != CONF.absolute():
            name = sorted(taken)[0]
            raise SettingError(f"{place / group / name}.yaml: the project has a {group} of this name; choose another")
    if place not in _ADDED:
        _ADDED.append(place)


def added() -> tuple[Path, ...]:
    """The user's folders."""
    return tuple(_ADDED)


def forget_added() -> None:
    """The project's folder alone."""
    _ADDED.clear()


def _stems(folder: Path) -> set[str]:
    return {path.stem for path in folder.glob("*.yaml")}


def choices(group: str) -> list[str]:
    """Names of all files of a group, in order."""
    return sorted(set().union(*(_stems(root / group) for root in (CONF, *_ADDED))))


def find(group: str, name: str) -> Path:
    """The file of a choice. Raises SettingError with the nearest name where there is none."""
    for root in (CONF, *_ADDED):
        path = root / group / f"{name}.yaml"
        if path.is_file():
            return path
    raise SettingError(no_such_choice(group, name))


def no_such_choice(group: str, name: str) -> str:
    """One line for a choice that does not exist."""
    known = choices(group)
    near = RENAMED.get(f"{group}={name}")
    hint = f" (did you mean {near}?)" if near in known else nearest(name, known)
    return f"{group}={short(name)}: no such choice{hint}; known: {', '.join(known)}"


def shown(path: Path) -> str:
    """A file's name in messages: conf/group/name.yaml in the project's folder, the whole path elsewhere."""
    return f"conf/{path.relative_to(CONF).as_posix()}" if path.is_relative_to(CONF) else str(path)


def nearest(found: str, known: list[str] | tuple[str, ...]) -> str:
    """(did you mean X?), or nothing where no name is near."""
    near = get_close_matches(found, known, n=1, cutoff=0.5)
    if not near:  # the last part may be right and the path wrong, or the path left out
        tails = {k.rpartition(".")[2]: k for k in reversed(known)}  # the experiment's own settings come first
        near = [tails[t] for t in get_close_matches(found.rpartition(".")[2], list(tails), n=1, cutoff=0.6)]
    return f" (did you mean {near[0]}?)" if near else ""


def short(text: object, length: int = 60) -> str:
    """A value as messages repeat it: one line, and not more of it than names it."""
    line = " ".join(str(text).split())
    return line if len(line) <= length else f"{line[: length // 2]} … {line[-length // 4 :]} ({len(line)} characters)"


def was_interrupted(error: BaseException | None) -> bool:
    """Whether a KeyboardInterrupt is behind an error: OmegaConf turns one that meets it into something else."""
    open_, seen = [error], set()
    while open_:
        found = open_.pop()
        if isinstance(found, KeyboardInterrupt):
            return True
        if found is not None and id(found) not in seen:
            seen.add(id(found))
            open_ += [found.__context__, found.__cause__]
    return False


def comments(path: Path) -> dict[str, str]:
    """Comment beside each key of a YAML file, by key: unit, meaning and place in the paper."""
    found: dict[str, str] = {}
    for line in path.read_text().splitlines():
        match = re.match(r"\s*(\w+):\s.*?\s#\s+(.+)$", line)
        if match:
            found.setdefault(match[1], match[2].strip())
    return found
