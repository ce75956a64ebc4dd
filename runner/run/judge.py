"""hess-run judge: the statements and numbers of any paper, decided from CSV tables."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from runner.contract import SettingError, one_of, setting
from runner.run.keys import Keys

if TYPE_CHECKING:
    import pandas as pd

    from runner.contract import Statement
    from runner.run.command_line import Call


@dataclass(frozen=True, kw_only=True)
class Judging(Keys):
    """What is decided, and where the verdicts are written."""

    experiment: str = setting("", help="decide the rows of this experiment alone")
    seeds: str = setting("", help="read these seeds alone: 42-46, or '1 2 3'")
    out: str = setting(".", help="folder of verdicts.csv and verdicts.md")


def judge_command(call: Call) -> int:
    """Decide statements and printed numbers from tables.

    ROWS are files statements.csv (columns: docs/statements.md) and numbers.csv; TABLES is a CSV
    file or a folder of them, in long form: one row a value, with a column `seed`. Prints the
    verdicts and writes verdicts.csv and verdicts.md; a file of these names that others have written
    or changed is kept as verdicts.kept.csv. Exit status 1: a row is refuted or not reproduced.
    """
    import pandas as pd

    from runner.report.output.manifest import write
    from runner.stats.rows import RowError
    from runner.stats.verdict_table import AGAINST, markdown, verdicts

    keys: Judging = call.keys
    *files, place = map(Path, call.words)
    parts = []
    for file in files:
        try:
            statements, numbers = _rows(file, keys.experiment)
            tables = _tables(place, statements, numbers, keys.seeds)
            parts.append(verdicts(statements, numbers, tables))
        except RowError as error:
            line = str(error)
            raise SettingError(line if line.startswith(str(file)) else f"{file}, {line}") from None
    found = pd.concat(parts, ignore_index=True)
    out = Path(keys.out)
    out.mkdir(parents=True, exist_ok=True)
    text = markdown(found)
    write(out / "verdicts.csv", found.to_csv(index=False).encode())
    write(out / "verdicts.md", text.encode())
    print(text, end="")
    return int(found["verdict"].isin(AGAINST).any())


def _rows(file: Path, experiment: str) -> tuple[list[Statement], pd.DataFrame | None]:
    """The statements or the numbers of a file."""
    from runner.stats.numbers import read_numbers
    from runner.stats.rows import lines_of

    header = next(iter(lines_of(file)), [])
    if not {"metric", "mean"} <= set(header):
        return _statements(file, experiment), None
    return [], read_numbers(file, experiment)


def _statements(file: Path, experiment: str) -> list[Statement]:
    """The statements of a file, of the experiment that is asked for."""
    from runner.stats.rows import RowError, read_statements

    known = read_statements(file)
    if experiment:
        one_of("experiment", experiment, list(dict.fromkeys(e for e, _ in known)))
    found = [s for (of, _), s in known.items() if experiment in ("", of)]
    for statement in found:
        if not statement.test:
            raise RowError(f"{statement.name}, test: expected the name of a test, found none")
    if not found:
        raise RowError("expected rows below the header, found none")
    return found


def _tables(
    place: Path, statements: list[Statement], numbers: pd.DataFrame | None, seeds: str
) -> dict[str, pd.DataFrame]:
    """The tables that rows name, of a folder or of one file, of these seeds or of all."""
    import pandas as pd

    from runner.stats.quantities import seeds_of
    from runner.stats.rows import named

    files = {place.stem: place}
    if place.is_dir():
        files = {path.stem: path for path in sorted(place.glob("*.csv"))}
    elif not place.is_file():
        raise SettingError(f"TABLES: expected a CSV file or a folder of them, found {place}")
    wanted = {s.table: s.name for s in statements if s.table}
    if numbers is not None and "table" in numbers:
        wanted |= {table: "numbers" for table in numbers["table"] if table}
    found = {}
    for name, row in wanted.items():
        named(f"{row}, table", name, files)
        table = pd.read_csv(files[name])
        if "seed" not in table:
            raise SettingError(f"{files[name]}: expected a column 'seed', found none")
        found[name] = table[table["seed"].isin(seeds_of(seeds))] if seeds else table
    return found
