"""Pictures of pages for docs/dashboard.md: `python -m tests.dashboard.browser.screens docs`."""

import asyncio
import sys
from pathlib import Path

from e2e.ground import packages
from tests.dashboard.browser.fleets import reading_of_fleet
from tests.dashboard.browser.looking import FLAGS, PHONE, dashboard_url, open_page

SMALL_SCREEN, README_SCREEN = {"width": 1120, "height": 640}, {"width": 1280, "height": 1000}
# The file, the fleet, the page, its size, and the colour scheme.
PICTURES = (
    ("dashboard-fleet.png", "busy", "/", README_SCREEN, "light"),
    ("dashboard-zone.png", "large", "/?by=topology.kubernetes.io%2Fzone&shelf=zone-3", SMALL_SCREEN, "dark"),
    ("dashboard-phone.png", "busy", "/waiting", PHONE, "light"),
)


async def take_pictures(browser, folder):
    """Write the pictures into the folder."""
    for file, fleet, path, size, scheme in PICTURES:
        async with (
            dashboard_url(lambda fleet=fleet: reading_of_fleet(fleet), search=5.0, is_live=False) as url,
            open_page(browser, url) as page,
        ):
            await page.set_viewport_size(size)
            await page.emulate_media(color_scheme=scheme)
            await page.goto(path)
            await page.screenshot(path=Path(folder) / file)


async def main(folder):
    from playwright.async_api import async_playwright

    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=packages.browser(), args=list(FLAGS))
        await take_pictures(browser, folder)
        await browser.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
