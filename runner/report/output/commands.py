"""The command lines that measure the cells of a report and draw its figures again."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from runner.contract import assignments, quoted
from runner.report.answers.scope import Scope
from runner.report.collect import measuring, shown_command
from runner.store.archive import published_folder

Record = Mapping[str, Any]


def settings_words(manifest: Record) -> list[str]:
    """The settings of a report as words of a command line."""
    words = [*manifest.get("options", []), f"experiment={manifest.get('experiment')}"]
    if manifest.get("profile", "paper") != "paper":
        words.append(f"profile={manifest['profile']}")
    return words + shlex.split(str(manifest.get("changed", "")))


def run_words(folder: Path, manifest: Record) -> list[str]:
    """The settings of a report and its output folder as words of a command line."""
    words = settings_words(manifest)
    root = root_of(folder, manifest)
    named = any(word.startswith("outputs=") for word in words)
    if root != published_folder(str(manifest.get("experiment"))) and not named:
        words.append(quoted("outputs", as_typed(root.parent)))
    return [word for word in words if word != "outputs=outputs"]


def root_of(folder: Path, manifest: Record) -> Path:
    """Folder of an experiment, whose report is in it or in a folder below."""
    if folder.name == str(manifest.get("experiment")):
        return folder
    return folder.parent


def as_typed(path: Path) -> Path:
    """A path as one would type it here."""
    here = Path.cwd()
    if path.is_relative_to(here):
        return path.relative_to(here)
    return path


def judged_seeds(manifest: Record) -> list[int]:
    """The seeds that verdicts read, of those that are stored."""
    seeds = Scope.of(manifest).seeds
    stored = {cell["seed"] for cell in manifest["cells"]}
    return sorted(stored & set(seeds) if seeds else stored)


def drawn_with(manifest: Record, figure: str) -> dict[str, Any]:
    """The settings that a figure of the paper depends on, besides those that all cells have: the
    grid values of the cells that it shows, and what it is drawn with."""
    place = manifest.get("places", {}).get(figure, "")
    cells = manifest.get("needs", {}).get(figure, {}).get("cells", {})
    return {**cells, **manifest.get("drawn_with", {}).get(place, {}), **cells}


def figure_words(manifest: Record, figure: str, words: Iterable[str]) -> tuple[list[str], int]:
    """The words of the command that measures as few cells as a figure needs, with its settings
    filled in, and how many seeds it shows. words: of the report."""
    words = list(words)
    named = {word.partition("=")[0] for word in words}
    settings = drawn_with(manifest, figure)
    words += assignments({name: settings[name] for name in settings if name not in named})
    one_seed = manifest.get("needs", {}).get(figure, {}).get("one_seed", False)
    return words, 1 if one_seed else len(judged_seeds(manifest))


def figure_commands(manifest: Record, figure: str, words: Iterable[str]) -> dict[str, str]:
    """What draws a figure again, and before it what measures it, where it depends on settings of
    its own. words: of the report."""
    words, seeds = figure_words(manifest, figure, words)
    draw = shown_command(["report", *words, f"figure={figure}"])
    if not drawn_with(manifest, figure):
        return {"redraw": draw}
    return {"measure": measuring(words, judged_seeds(manifest)[:seeds]), "redraw": draw}
