"""Every page in a real browser, over four fleets: no error of the browser, no horizontal scrolling on a phone, and no finding of axe-core."""

import struct
from pathlib import Path

import pytest

from tests.dashboard.browser import screens
from tests.dashboard.browser.fleets import scene, views
from tests.dashboard.browser.looking import PHONE, WIDE, opened, served, sideways, violations

DOCS = Path(__file__).parents[3] / "docs"
pytestmark = pytest.mark.asyncio(loop_scope="module")
WRAPPED_LINKS = """() => [...document.querySelectorAll("nav a")].filter(one => one.getClientRects().length > 1).map(one => one.textContent).join()"""
LANDMARKS = """() => [...document.querySelectorAll("main, header, footer, nav, h1")].map(one => one.tagName).join()"""


@pytest.mark.parametrize("name", ["example", "large", "empty", "hostile"])
@pytest.mark.slow_turn(30, "a fleet is read in it")
async def test_each_page_fits_screen_and_phone_in_light_and_dark(chromium, axe, name):
    wrong = []
    async with served(lambda: scene(name), search=1.0, lives=False) as url, opened(chromium, url) as page:
        for path in views(name):
            await page.emulate_media(color_scheme="light")
            await page.set_viewport_size(WIDE)
            answer = await page.goto(path)
            assert answer.status == (404 if path == "/pods/none/none" else 200), path
            assert sorted((await page.evaluate(LANDMARKS)).split(",")) == ["FOOTER", "H1", "HEADER", "MAIN", "NAV"], (
                path
            )
            wrong += [f"{path}: {violation}" for violation in await violations(page, axe)]
            await page.emulate_media(color_scheme="dark")
            wrong += [f"{path}, dark: {violation}" for violation in await violations(page, axe, ["color-contrast"])]
            await page.set_viewport_size(PHONE)
            if wrapped := await page.evaluate(WRAPPED_LINKS):
                wrong.append(f"{path}: {wrapped} is broken into lines")
            if over := await sideways(page):
                wrong.append(f"{path}: {over} pixels wider than a phone")
            wrong += [
                f"{path}, phone: {violation}"
                for violation in await violations(page, axe, ["scrollable-region-focusable", "target-size"])
            ]
            wrong += [f"{path}: {complaint}" for complaint in page.complaints if "status of 404" not in complaint]
            page.complaints.clear()
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow_turn(30, "a fleet is read in it")
async def test_the_pictures_of_the_docs_can_be_generated(chromium, tmp_path):
    await screens.take(chromium, tmp_path)
    for file, _, _, size, _ in screens.PICTURES:
        for picture in (tmp_path / file, DOCS / file):
            head = picture.read_bytes()[:24]
            assert struct.unpack(">II", head[16:]) == (size["width"], size["height"]), picture
            assert picture.stat().st_size < 120_000
