"""The guide's code runs as it stands, and so do the examples that it names."""

import re
from pathlib import Path

import pandas as pd
import pytest

from runner.diagnose.command import parse
from runner.diagnose.experiment import diagnose
from runner.diagnose.report import DiagnosisAnalysis

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_code_of_the_guide(capsys):
    code = re.findall(r"```python\n(.*?)```", (DOCS / "own-network.md").read_text(), re.DOTALL)
    assert len(code) >= 4
    exec(compile("\n".join(code), "own-network.md", "exec"), {"__name__": "guide"})
    out = capsys.readouterr().out
    assert "('embed', 'body', 'head')" in out and "certified" in out and "NOT" not in out


@pytest.mark.parametrize(
    ("target", "words", "nodes"),
    [
        ("digits.py:convnet", ["steps=0", "parts=network,layers"], {"0", "2", "5"}),
        ("characters.py:transformer", ["nodes=layers.layers.*", "parts=network,layers"], {"layers.layers.0", "output"}),
    ],
)
def test_the_examples(target, words, nodes, tmp_path, monkeypatch):
    monkeypatch.setattr(DiagnosisAnalysis, "figures", lambda self: {})
    request = parse([f"target={DOCS / 'examples' / target}", f"outputs={tmp_path}", "name=it", *words])
    assert diagnose(request, lambda line: None) == 0
    layers = pd.read_csv(tmp_path / "it" / "tables" / "layers.csv", dtype={"v": str, "w": str})
    assert nodes <= set(layers["v"]) and (layers["status"] == "ok").all()
    assert (layers["C"] <= 1.05).all() or layers["C"].notna().all()
    lines = (DOCS / "examples" / target.partition(":")[0]).read_text().split("def ")[1].splitlines()
    assert len(lines) < 40
