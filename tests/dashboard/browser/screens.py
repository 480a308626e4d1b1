"""Pictures of pages for docs/dashboard.md: `python -m tests.dashboard.browser.screens docs`."""

import asyncio
import sys
from pathlib import Path

from e2e.ground import packages
from tests.dashboard.browser.fleets import scene
from tests.dashboard.browser.looking import FLAGS, PHONE, opened, served

SCREEN = {"width": 1120, "height": 640}
# The file, the fleet, the page, its size, and the colour scheme.
PICTURES = (
    ("dashboard-fleet.png", "large", "/", SCREEN, "light"),
    ("dashboard-zone.png", "large", "/?by=topology.kubernetes.io%2Fzone&shelf=zone-3", SCREEN, "dark"),
    ("dashboard-phone.png", "example", "/waiting", PHONE, "light"),
)


async def take(browser, folder):
    """Write the pictures into a folder."""
    for file, name, path, size, scheme in PICTURES:
        async with served(lambda name=name: scene(name), search=5.0, lives=False) as url, opened(browser, url) as page:
            await page.set_viewport_size(size)
            await page.emulate_media(color_scheme=scheme)
            await page.goto(path)
            await page.screenshot(path=Path(folder) / file)


async def main(folder):
    from playwright.async_api import async_playwright

    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=packages.browser(), args=list(FLAGS))
        await take(browser, folder)
        await browser.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
