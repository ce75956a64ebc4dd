"""Figures to files: small pictures that say where they come from, the same bytes for the same figure."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.report.footers import footers
from runner.store.tables import write_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 160


def save(figure: Figure, path: Path, stamp: Mapping[str, Any], *, pdf: bool = False) -> list[Path]:
    """Write `path`.png and, where asked for, `path`.pdf (`path` without suffix), and return what was written.

    stamp: what the figure comes from (experiment, figure, run, commit, profile, data …); it goes into the files'
    metadata as JSON. Printed below the figure: the seeds of `stamp["seeds"]` with what `note` said, and
    `stamp["warning"]`, when not empty, in red: surrogate data, shortened training. The same figure and stamp give the
    same bytes; each file appears by one rename.
    """
    record = json.dumps({k: str(v) for k, v in stamp.items() if v not in ("", None)}, ensure_ascii=True)
    title = " ".join(str(stamp[k]) for k in ("experiment", "figure") if stamp.get(k))
    _hold_legends(figure)
    below = footers(figure, stamp)
    written = []
    try:
        for suffix, metadata in (
            (".png", {"Title": title, "Description": record, "Software": "hess-run"}),
            (".pdf", {"Title": title, "Subject": record, "Creator": "hess-run", "CreationDate": None}),
        )[: 2 if pdf else 1]:
            buffer = io.BytesIO()
            figure.savefig(buffer, format=suffix[1:], dpi=DPI, bbox_inches="tight", pad_inches=0.05, metadata=metadata)
            target = path.with_name(path.name + suffix)
            content = buffer.getvalue()
            write_bytes(target, palette_png(content) if suffix == ".png" else content)
            written.append(target)
    finally:
        for text in below:
            text.remove()
    return written


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
