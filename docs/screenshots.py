"""Take the pictures of README from the pages below outputs/: `make pictures`, after `make report`.

    python docs/screenshots.py                          the two pictures of README, into docs/pictures
    python docs/screenshots.py FOLDER PAGE[#ANCHOR] …   any pages, wide and narrow, light and dark, into FOLDER

Needs Chromium with its driver, and `pip install -e '.[browser]'`.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PICTURES = {"start": "index.html", "experiment": "exp3_gn_gap/index.html#dag.T5.gelu.final.gap_global"}
FLAGS = "headless=new no-sandbox disable-gpu hide-scrollbars force-device-scale-factor=1"
WIDE, NARROW = (1280, 800), (390, 844)


def browser(dark: bool = False) -> Any:
    """Chromium without a window."""
    from selenium import webdriver

    programs = {name: shutil.which(name) for name in ("chromium", "chromedriver")}
    if None in programs.values():
        raise SystemExit(f"expected chromium and chromedriver on PATH, found {programs}")
    options = webdriver.ChromeOptions()
    options.binary_location = str(programs["chromium"])
    for flag in FLAGS.split():
        options.add_argument(f"--{flag}")
    if dark:
        options.add_argument("--blink-settings=preferredColorScheme=0")
    service = webdriver.ChromeService(executable_path=programs["chromedriver"])
    return webdriver.Chrome(options=options, service=service)


def take(driver: Any, page: str, size: tuple[int, int], path: Path) -> None:
    """A picture of the top of a page, or of what its anchor opens."""
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size[0] < 600},
    )
    file, _, anchor = page.partition("#")
    driver.get("about:blank")
    driver.get((ROOT / "outputs" / file).as_uri() + (f"#{anchor}" if anchor else ""))
    time.sleep(0.5)
    path.parent.mkdir(parents=True, exist_ok=True)
    driver.save_screenshot(str(path))
    smaller(path)


def smaller(path: Path) -> None:
    """The same picture with 256 colours."""
    from PIL import Image

    Image.open(path).convert("RGB").quantize(256, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).save(
        path, optimize=True
    )


def main(argv: Sequence[str]) -> int:
    missing = [page for page in PICTURES.values() if not (ROOT / "outputs" / page.partition("#")[0]).is_file()]
    if missing:
        print(f"no outputs/{missing[0]}; make report writes it", file=sys.stderr)
        return 2
    light = browser()
    try:
        if not argv:
            for name, page in PICTURES.items():
                take(light, page, WIDE, ROOT / "docs" / "pictures" / f"{name}.png")
            return 0
        for theme, driver in (("light", light), ("dark", browser(dark=True))):
            for page in argv[1:]:
                for width, size in (("wide", WIDE), ("narrow", NARROW)):
                    name = page.replace("/index.html", "").replace(".html", "").replace("/", "-").replace("#", "-")
                    take(driver, page, size, Path(argv[0]) / f"{name}-{width}-{theme}.png")
            driver.quit()
    finally:
        light.quit()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
