"""`hess-run judge`: rows and tables of any paper, and how they end."""

import pandas as pd
import pytest

NUMBERS = """metric,method,mean,std,n_seeds,table,where,quantity,source
accuracy,A,0.80,0.01,5,runs,,accuracy,Table 1
accuracy,B,0.90,0.01,5,runs,,accuracy,Table 1
loss,B,0.5,,5,,,,Table 2 (no table of ours has it)
"""


@pytest.fixture
def files(command):
    """Writes a table of five seeds and files of rows into the working folder."""

    def write(statements, numbers=NUMBERS, b=0.9):
        rows = []
        for method, mean in (("A", 0.8), ("B", b)):
            for seed in range(5):
                rows.append((seed, method, mean + 0.002 * (seed - 2)))
        runs = pd.DataFrame(rows, columns=["seed", "method", "accuracy"])
        (command.folder / "tables").mkdir(exist_ok=True)
        runs.to_csv(command.folder / "tables" / "runs.csv", index=False)
        (command.folder / "statements.csv").write_text(statements)
        (command.folder / "numbers.csv").write_text(numbers)

    return write


CONTRAST = "name,text,table,quantity,contrast,test,low\n"
CONTRAST += "gain,B is better,runs,accuracy,method B - A,bound,0.05\n"


def test_rows_of_any_paper_are_decided(command, files):
    files(CONTRAST)
    out = command.output("judge", "statements.csv", "numbers.csv", "tables", "out=verdicts")
    assert out.startswith("3 rows: 2 reproduced, 1 confirmed.")
    found = pd.read_csv(command.folder / "verdicts" / "verdicts.csv").set_index("row")
    assert found["verdict"].to_dict() == {
        "gain": "confirmed",
        "accuracy method=A": "reproduced",
        "accuracy method=B": "reproduced",
    }
    gain = found.loc["gain"]
    assert gain["value"] == pytest.approx(0.1) and gain["n"] == 5
    assert (command.folder / "verdicts" / "verdicts.md").read_text() == out


def test_a_verdict_against_the_paper_has_exit_status_1(command, files):
    files(CONTRAST, b=0.6)
    status, out, err = command("judge", "statements.csv", "tables")
    assert (status, err) == (1, "") and "| refuted |" in out
    status, out, _ = command("judge", "numbers.csv", "tables/runs.csv")
    assert status == 1 and "1 not reproduced" in out


def test_seeds_are_chosen_and_too_few_decide_nothing(command, files):
    files(CONTRAST)
    out = command.output("judge", "statements.csv", "tables", "seeds=0-1")
    assert "| inconclusive |" in out


@pytest.mark.parametrize(
    "change, words",
    [
        (("accuracy,method", "acuracy,method"), "statements.csv, gain, quantity: column of runs"),
        (("bound", "bond"), "statements.csv, gain, test: expected one of"),
        ((",runs,", ",run,"), "statements.csv, gain, table: expected one of runs"),
        (("0.05", "much"), "statements.csv, row 2, low: expected a number, found 'much'"),
        (("method B - A", "method B"), "statements.csv, gain, contrast: expected"),
        (("bound,0.05", ",0.05"), "statements.csv, gain, test: expected the name of a test"),
    ],
)
def test_a_row_that_cannot_be_meant_is_one_line(command, files, change, words):
    files(CONTRAST.replace(*change))
    assert words in command.refusal("judge", "statements.csv", "tables")
    assert not (command.folder / "verdicts.csv").exists()


@pytest.mark.parametrize(
    "old, new, nearest",
    [("n_seeds", "n_seds", "n_seeds"), ("metric,method", "metric,methd", "method")],
)
def test_a_mistyped_column_of_numbers_is_one_line(command, files, old, new, nearest):
    files(CONTRAST, NUMBERS.replace(old, new))
    line = command.refusal("judge", "numbers.csv", "tables")
    assert f"did you mean {nearest!r}?" in line


def test_a_printed_bound_is_shown_as_one(command, files):
    files(CONTRAST, NUMBERS.replace("mean,std", "mean,upper_bound").replace("0.80,0.01", ",0.95"))
    assert "| ≤ 0.95 |" in command.output("judge", "numbers.csv", "tables")


def test_a_quoted_header_after_a_byte_order_mark_is_read(command, files):
    header, row = CONTRAST.splitlines()
    files(f"{quoted(header)}\n{row}\n", f"\ufeff{quoted(NUMBERS)}")
    out = command.output("judge", "statements.csv", "numbers.csv", "tables")
    assert out.startswith("3 rows: 2 reproduced, 1 confirmed.")


def quoted(text):
    """The names in the first line in quotation marks."""
    first, *rest = text.split("\n")
    return "\n".join([",".join(f'"{name}"' for name in first.split(",")), *rest])


def test_a_file_of_the_users_is_kept(command, files):
    files(CONTRAST)
    (command.folder / "verdicts.csv").write_text("mine")
    for _ in range(2):  # what the command itself wrote is replaced
        status, _, err = command("judge", "statements.csv", "tables")
    assert status == 0 and not err
    assert (command.folder / "verdicts.kept.csv").read_text() == "mine"
    assert len([*command.folder.glob("verdicts.*")]) == 3
    files(CONTRAST, b=0.6)
    command("judge", "statements.csv", "tables")
    assert len([*command.folder.glob("verdicts.*")]) == 3


def test_what_is_not_there_is_named(command, files):
    header, row, *_ = NUMBERS.splitlines()
    files(CONTRAST, f"experiment,results,{header}\ne,f:x/y,{row}\n")
    told = command.refusal("judge", "numbers.csv", "tables", "experiment=f")
    assert "numbers.csv, experiment: expected one of e, found f" in told
    told = command.refusal("judge", "numbers.csv", "tables")
    assert "numbers.csv, results: expected places of" in told and "found f:x/y" in told
    files(CONTRAST)
    assert "expected a CSV file or a folder" in command.refusal("judge", "statements.csv", "absent")
    assert "absent.csv: cannot be read" in command.refusal("judge", "absent.csv", "tables")
    assert "expected judge ROWS... TABLES" in command.refusal("judge", "statements.csv")
    pd.DataFrame({"x": [1]}).to_csv(command.folder / "runs.csv")
    assert "expected a column 'seed'" in command.refusal("judge", "statements.csv", "runs.csv")
