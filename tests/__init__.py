"""The tests of the project; `python -m tests.size` counts its code."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCS, PUBLISHED = ROOT / "docs", ROOT / "outputs" / "published"
