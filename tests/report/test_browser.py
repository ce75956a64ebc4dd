"""In a browser: pages work, fit a phone, are accessible in light and dark."""

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
        "return document.querySelectorAll('table.rows tbody tr[id]:not([hidden])').length"
    )


def typed(browser, text):
    """Type into the field that filters the rows."""
    browser.execute_script(
        "const f = document.querySelector('.filter [name=q]'); f.value = arguments[0];"
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
    opened(browser, url + "#rows?verdict=reproduced")
    assert rows_of(browser) == 4
    heads = "document.querySelectorAll('table.rows th button')"
    browser.execute_script(f"{heads}[3].click(); {heads}[3].click();")
    first = "return document.querySelector('table.rows tr[id]:not([hidden])').cells[3].textContent"
    assert browser.execute_script(first).startswith("1.09")
    opened(browser, url + "#rows?q=Table+5")
    answer = browser.execute_script("return document.querySelector('.filter output').textContent")
    assert answer == "12 of 13 rows"
    opened(browser, url + "#dag.T5.silu.final.3.gap")
    row = "document.getElementById('dag.T5.silu.final.3.gap')"
    assert browser.execute_script(f"return {row}.querySelector('details').open")
    assert "activation=silu" in browser.execute_script(f"return {row}.innerText")
    assert browser.get_log("browser") == []


def test_a_link_to_a_hidden_row_shows_it(browser, tmp_path):
    opened(browser, built(tmp_path).as_uri() + "#rows?q=nothing")
    assert rows_of(browser) == 0
    browser.execute_script("location.hash = '#dag.exp3.falls'")
    assert waited(browser, "!document.getElementById('dag.exp3.falls').hidden")


def test_the_theme_follows_the_system(browser, tmp_path):
    url = built(tmp_path).as_uri()
    background = "return getComputedStyle(document.body).backgroundColor"
    opened(browser, url)
    light = browser.execute_script(background)
    opened(browser, url, theme="dark")
    dark = browser.execute_script(background)
    assert light == "rgb(255, 255, 255)" and dark != light


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, DESKTOP])
@pytest.mark.parametrize("page", ["index.html", "exp3/index.html"])
def test_pages_fit_and_are_accessible(browser, tmp_path, page, width, theme):
    built(tmp_path)
    opened(browser, (tmp_path / page).as_uri(), width, theme)
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
