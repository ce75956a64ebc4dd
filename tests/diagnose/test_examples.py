"""The guide's code runs as it stands, and so do the examples that it names."""

import re

import pytest

from tests import DOCS
from tests.diagnose.conftest import made, table


def test_the_code_of_the_guide(capsys):
    code = re.findall(r"```python\n(.*?)```", (DOCS / "own-network.md").read_text(), re.DOTALL)
    assert len(code) >= 4
    exec(compile("\n".join(code), "own-network.md", "exec"), {"__name__": "guide"})
    out = capsys.readouterr().out
    assert "{'embed': 6, 'body': 6, 'head': 3}" in out and "certified" in out and "NOT" not in out


@pytest.mark.parametrize(
    "target, words, nodes",
    [
        pytest.param(
            "digits.py:convnet",
            ["steps=0", "parts=network,layers", "batches=1"],
            {"0", "2", "5"},
            marks=pytest.mark.slow,
        ),
        (
            "characters.py:transformer",
            ["nodes=layers.layers.*", "parts=network,layers"],
            {"layers.layers.0", "layers.layers.1"},
        ),
    ],
)
def test_the_examples(target, words, nodes, tmp_path):
    file, _, function = target.partition(":")
    _, folder = made(function, tmp_path, *words, file=str(DOCS / "examples" / file))
    layers = table(folder, "layers")
    assert nodes <= set(layers["v"]) and (layers["status"] == "ok").all()
    assert layers["C"].notna().all()
    lines = (DOCS / "examples" / file).read_text().split("def ")[1].splitlines()
    assert len(lines) < 40
