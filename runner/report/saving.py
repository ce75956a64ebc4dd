"""Figures to files: small pictures that hold their own provenance, the same bytes for the same figure."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.store.tables import write_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 160
FORMATS = ("png", "pdf", "svg")


def save(figure: Figure, path: Path, stamp: Mapping[str, Any], *, suffix: str = "png") -> Path:
    """Write a figure to `path`.`suffix`, by one rename, and return the file.

    Parameters
    ----------
    path
        Without suffix.
    stamp
        Provenance (experiment, figure, run, commit, profile, data …). It goes into the file's metadata as JSON. Only
        stand-in data and a profile other than the paper's are also written below the plot.
    suffix
        One of `FORMATS`.

    Notes
    -----
    The same figure and stamp give the same bytes.
    """
    import matplotlib

    record = json.dumps({k: str(v) for k, v in stamp.items() if v not in ("", None)}, ensure_ascii=True)
    title = " ".join(str(stamp[k]) for k in ("experiment", "figure") if stamp.get(k))
    metadata: dict[str, dict[str, Any]] = {
        "png": {"Title": title, "Description": record, "Software": "hess-run"},
        "pdf": {"Title": title, "Subject": record, "Creator": "hess-run", "CreationDate": None},
        "svg": {"Title": title, "Description": record, "Creator": "hess-run", "Date": None},
    }
    _hold_legends(figure)
    footer = _footer(figure, stamp)
    buffer = io.BytesIO()
    try:
        with matplotlib.rc_context({"svg.hashsalt": "hess-run"}):
            box: dict[str, Any] = {"bbox_inches": "tight", "pad_inches": 0.05, "dpi": DPI}
            figure.savefig(buffer, format=suffix, metadata=metadata[suffix], **box)
    finally:
        if footer is not None:
            footer.remove()
    target, content = path.with_name(f"{path.name}.{suffix}"), buffer.getvalue()
    write_bytes(target, palette_png(content) if suffix == "png" else content)
    return target


def _footer(figure: Figure, stamp: Mapping[str, Any]) -> Any:
    """What keeps a figure from being the paper's, below the canvas: a picture is copied without its caption."""
    words = ["random-field stand-in data"] if stamp.get("data") == "surrogate" else []
    words += [f"profile={stamp['profile']}"] if stamp.get("profile", "paper") not in ("paper", "") else []
    if not words:
        return None
    return figure.text(0.5, -0.01, ", ".join(words), ha="center", va="top", fontsize=8, color="0.35")


def palette_png(content: bytes) -> bytes:
    """The same picture with a palette of 256 colours, metadata kept: a third of the size, and plots look alike."""
    from PIL import Image
    from PIL.PngImagePlugin import PngInfo

    image = Image.open(io.BytesIO(content))
    if image.mode == "P":
        return content
    kept = PngInfo()
    for key, value in getattr(image, "text", {}).items():
        kept.add_text(key, value)
    small = image.convert("RGB").quantize(256, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    out = io.BytesIO()
    small.save(out, format="PNG", optimize=True, pnginfo=kept, dpi=image.info.get("dpi", (DPI, DPI)))
    return out.getvalue()


def _hold_legends(figure: Figure) -> None:
    """Fix the figure's own legends where the layout puts them.

    They hang on the box of the whole figure, which a tight bounding box replaces: with a footer below the canvas they
    would slide down over it.
    """
    if not figure.legends:
        return
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for legend in figure.legends:
        box = legend.get_window_extent().transformed(figure.transFigure.inverted())
        legend.borderaxespad = 0
        legend.set_loc("lower left")
        legend.set_bbox_to_anchor((box.x0, box.y0), figure.transFigure)
