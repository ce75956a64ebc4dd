"""The tests of the project."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCS, PUBLISHED = ROOT / "docs", ROOT / "outputs" / "published"


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, by its path in it."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}
