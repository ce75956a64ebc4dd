"""In a browser: pages work, are quick, fit a phone, are accessible in light and dark."""

import shutil
import time
from pathlib import Path

import pytest

from tests.report.made_up import built

FLAGS = (
    "headless=new no-sandbox disable-gpu disable-quic no-first-run disable-background-networking "
    "disable-component-update disable-sync window-size=1280,900"
)
PHONE, DESKTOP = 390, 1280
ACCESSIBLE = (Path(__file__).parent / "accessible.js").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def browser():
    """Headless Chromium, where it and its driver are installed."""
    webdriver = pytest.importorskip(
        "selenium.webdriver", reason="selenium is not installed (extra: browser)"
    )
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        pytest.skip("chromium and chromedriver are not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    for flag in FLAGS.split():
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(executable_path=str(shutil.which("chromedriver")))
    driver = webdriver.Chrome(options=options, service=service)
    yield driver
    driver.quit()


def opened(browser, url, width=DESKTOP, theme="light"):
    """Open a page as a screen of that width and theme shows it."""
    screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width == PHONE}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    scheme = [{"name": "prefers-color-scheme", "value": theme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
    browser.get("about:blank")
    browser.get(url)


def rows_of(browser):
    return browser.execute_script(
        "return document.querySelectorAll('#table tbody tr:not(.detail)').length"
    )


def typed(browser, text):
    """Type into the field that filters the rows."""
    browser.execute_script(
        "const f = document.querySelector('#filter [name=q]'); f.value = arguments[0];"
        "f.dispatchEvent(new Event('input', {bubbles: true}));",
        text,
    )


def waited(browser, script):
    """What a script returns, as soon as that is true."""
    deadline = time.monotonic() + 10
    while not (value := browser.execute_script(f"return {script}")):
        assert time.monotonic() < deadline, script
    return value


def test_rows_filter_sort_open_and_keep_their_state_in_the_address(browser, tmp_path):
    url = built(tmp_path).as_uri()
    opened(browser, url)
    assert rows_of(browser) == 13
    typed(browser, "silu")
    assert rows_of(browser) == 6 and browser.current_url.endswith("#rows?q=silu")
    opened(browser, url + "#rows?verdict=reproduced&sort=-ours")
    assert rows_of(browser) == 4
    first = "return document.querySelector('#table tbody td:nth-child(4)').textContent"
    assert browser.execute_script(first).startswith("1.09")
    opened(browser, url + "#rows?q=Table+5")
    answer = browser.execute_script("return document.querySelector('#filter output').textContent")
    assert answer == "12 of 13 rows: 4 reproduced, 4 not reproduced, 4 inconclusive"
    opened(browser, url + "#dag.T5.silu.final.3.gap")
    detail = browser.execute_script("return document.querySelector('tr.detail').textContent")
    for text in ("reproduce", "activation=silu", "Circles: our seeds", "cells1"):
        assert text in detail
    browser.execute_script("document.getElementById('load-stats').click()")
    assert waited(browser, "document.querySelector('#stats table') !== null")
    assert browser.get_log("browser") == []


def test_of_many_rows_a_hundred_are_shown_at_first(browser, tmp_path):
    opened(browser, built(tmp_path, rows=2000).as_uri())
    typed(browser, "silu")
    assert rows_of(browser) == 100  # as many as are shown at first


def test_marks_of_the_plot_lead_to_their_rows(browser, tmp_path):
    built(tmp_path)
    opened(browser, (tmp_path / "index.html").as_uri())
    marks = "return document.querySelectorAll('#plot a').length"
    assert browser.execute_script(marks) == 12
    target = browser.execute_script("return document.querySelector('#plot a').href.baseVal")
    assert target == "exp3/index.html#dag.T5.relu.final.0.gap"
    assert browser.get_log("browser") == []


def test_the_navigation_lists_the_experiments_by_paper_around_the_page(browser, tmp_path):
    for name in ("exp3", "exp4", "exp5"):
        built(tmp_path, name=name)
    opened(browser, (tmp_path / "exp4" / "index.html").as_uri())
    listed = waited(browser, "document.getElementById('pages').innerText")
    assert listed.split()[:3] == ["DAG", "exp3", "exp4"] and "Provenance" in listed
    turn = browser.execute_script("return document.querySelector('.turn').innerText")
    assert "exp3" in turn and "exp5" in turn
    opened(browser, (tmp_path / "exp4" / "index.html").as_uri(), PHONE)
    shown = "return document.getElementById('side').checkVisibility()"
    assert not browser.execute_script(shown)
    browser.execute_script("document.getElementById('menu').click()")
    assert browser.execute_script(shown)


def test_the_theme_follows_the_system_until_one_is_chosen(browser, tmp_path):
    url = built(tmp_path).as_uri()
    background = "return getComputedStyle(document.body).backgroundColor"
    opened(browser, url)
    light = browser.execute_script(background)
    opened(browser, url, theme="dark")
    dark = browser.execute_script(background)
    assert light == "rgb(255, 255, 255)" and dark != light
    browser.execute_script("document.getElementById('theme').click()")
    assert browser.execute_script(background) == light
    browser.execute_script("localStorage.removeItem('theme')")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, DESKTOP])
@pytest.mark.parametrize("page", ["index.html", "exp3/index.html"])
def test_pages_fit_and_are_accessible(browser, tmp_path, page, width, theme):
    built(tmp_path)
    opened(browser, (tmp_path / page).as_uri(), width, theme)
    waited(browser, "document.getElementById('pages').children.length")
    size = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert browser.execute_script(size) <= 0
    assert browser.execute_script(ACCESSIBLE) == []
    assert browser.get_log("browser") == []


def test_the_accessibility_check_sees_what_is_wrong(browser, tmp_path):
    page = tmp_path / "wrong.html"
    page.write_text(
        "<!doctype html><title>x</title><body style='background:#fff'><h1>A</h1><h3>B</h3>"
        "<p style='color:#aaa'>pale</p><img src='data:,'><input><button></button>"
        "<p id=a></p><p id=a></p>"
    )
    opened(browser, page.as_uri())
    wrong = " ".join(browser.execute_script(ACCESSIBLE))
    for text in ("language", "main", "H3 after h1", "contrast", "IMG", "INPUT", "BUTTON", "id a"):
        assert text in wrong
