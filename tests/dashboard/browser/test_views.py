"""Every page in a real browser, over four fleets: no error of the browser, no horizontal scrolling on a phone, and no finding of axe-core."""

import struct
from pathlib import Path

import pytest

from tests.dashboard.browser import screens
from tests.dashboard.browser.fleets import page_paths, reading_of_fleet
from tests.dashboard.browser.looking import DESKTOP, PHONE, axe_findings, dashboard_url, open_page, overflow

DOCS = Path(__file__).parents[3] / "docs"
pytestmark = pytest.mark.asyncio(loop_scope="module")
WRAPPED_LINKS = """() => [...document.querySelectorAll("nav a")].filter(link => link.getClientRects().length > 1).map(link => link.textContent).join()"""
LANDMARKS = (
    """() => [...document.querySelectorAll("main, header, footer, nav, h1")].map(element => element.tagName).join()"""
)


# Each page has the time limit of the browser. The test has one for 15 pages of 5,000 nodes on a busy machine.
@pytest.mark.timeout(600)
@pytest.mark.whole
@pytest.mark.parametrize("fleet", ["busy", "large", "empty", "hostile"])
async def test_each_page_fits_and_is_accessible_on_desktop_and_phone(chromium, axe, fleet):
    problems = []
    async with (
        dashboard_url(lambda: reading_of_fleet(fleet), search=1.0, is_live=False) as url,
        open_page(chromium, url) as page,
    ):
        for path in page_paths(fleet):
            await page.emulate_media(color_scheme="light")
            await page.set_viewport_size(DESKTOP)
            answer = await page.goto(path)
            assert answer.status == (404 if path == "/pods/none/none" else 200), path
            assert sorted((await page.evaluate(LANDMARKS)).split(",")) == ["FOOTER", "H1", "HEADER", "MAIN", "NAV"], (
                path
            )
            problems += [f"{path}: {finding}" for finding in await axe_findings(page, axe)]
            await page.emulate_media(color_scheme="dark")
            problems += [f"{path}, dark: {finding}" for finding in await axe_findings(page, axe, ["color-contrast"])]
            await page.set_viewport_size(PHONE)
            if wrapped := await page.evaluate(WRAPPED_LINKS):
                problems.append(f"{path}: {wrapped} is broken into lines")
            if pixels := await overflow(page):
                problems.append(f"{path}: {pixels} pixels wider than a phone")
            problems += [
                f"{path}, phone: {finding}"
                for finding in await axe_findings(page, axe, ["scrollable-region-focusable", "target-size"])
            ]
            problems += [f"{path}: {complaint}" for complaint in page.complaints if "status of 404" not in complaint]
            page.complaints.clear()
    assert not problems, "\n".join(problems)


@pytest.mark.whole
async def test_the_pictures_of_the_docs_can_be_generated(chromium, tmp_path):
    await screens.take_pictures(chromium, tmp_path)
    for file, _, _, size, _ in screens.PICTURES:
        for picture in (tmp_path / file, DOCS / file):
            head = picture.read_bytes()[:24]
            assert struct.unpack(">II", head[16:]) == (size["width"], size["height"]), picture
            assert picture.stat().st_size < 200_000
