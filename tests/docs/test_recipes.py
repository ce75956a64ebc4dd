"""The recipes run, and their pages show the code that runs."""

import importlib

import pytest

recipes = importlib.import_module("docs.recipes.__main__")
SCRIPTS = recipes.scripts()
QUICK = {"results_in_pandas"}
"""Run every day; the others by `make test-slow`."""


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_the_page_of_a_recipe_shows_its_code(script):
    missing = recipes.missing_package(script)
    if missing and not script.with_suffix(".md").exists():
        pytest.skip(f"its page is not made yet: needs {missing}")
    title, text, code = recipes.text_and_code(script)
    page = script.with_suffix(".md").read_text(encoding="utf-8")
    assert page.startswith(f"# {title}\n\n{text}\n\n```python\n{code}\n```\n")
    assert len(page.splitlines()) <= 100
    index = (script.parent / "index.md").read_text(encoding="utf-8")
    assert f"({script.stem}.md)" in index


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(path, id=path.stem, marks=[] if path.stem in QUICK else pytest.mark.slow)
        for path in SCRIPTS
    ],
)
def test_a_recipe_runs(script, tmp_path, published):
    missing = recipes.missing_package(script)
    if missing:
        pytest.skip(f"needs {missing}")
    assert recipes.run(script, tmp_path).strip()
    assert (tmp_path / "recipe.png").exists() == (
        "savefig" in script.read_text() or "copyfile" in script.read_text()
    )
