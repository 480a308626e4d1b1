"""Headless Chromium of Debian, one per test file. Without Chromium or playwright the tests are skipped with the reason."""

from pathlib import Path

import pytest
import pytest_asyncio

from e2e.ground import packages
from tests.dashboard.browser.looking import FLAGS


@pytest.fixture(scope="session")
def playwright():
    """Return the package. It is imported outside of any event loop, because Python compiles it for half a second in a new environment."""
    return pytest.importorskip("playwright.async_api", reason="playwright is not installed")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chromium(playwright):
    program = packages.browser()
    if not program:
        pytest.skip("there is no Chromium: `apt-get install chromium` brings it")
    async with playwright.async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=program, args=list(FLAGS))
        try:
            yield browser
        finally:
            await browser.close()


@pytest.fixture(scope="session")
def axe():
    """Return the script of axe-core."""
    package = pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is not installed")
    return Path(package.__file__).with_name("axe.min.js").read_text()
