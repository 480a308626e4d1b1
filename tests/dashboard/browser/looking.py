"""Pages in a browser: the browser's errors and warnings, horizontal scrolling, and the findings of axe-core."""

from contextlib import asynccontextmanager

from dashboard import Dashboard, PictureSource

# These arguments prevent requests to other hosts, and the use of a GPU.
FLAGS = ("--disable-gpu", "--disable-quic", "--disable-sync", "--disable-component-update", "--disable-background-networking", "--no-first-run")  # fmt: skip
WIDE, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
PATIENCE = 120_000  # milliseconds, enough for a busy machine
RULES = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")


@asynccontextmanager
async def served(read, *, lives=True, **options):
    source = PictureSource("a test", read, lives=lives)
    async with Dashboard(source, **options).open("127.0.0.1", 0) as url:
        yield url


@asynccontextmanager
async def opened(chromium, url="", **options):
    """Yield a page in a new browser profile. `page.complaints` collects errors, warnings and dialogs."""
    context = await chromium.new_context(base_url=url or None, viewport=WIDE, **options)
    page = await context.new_page()
    complaints = []
    page.on(
        "console",
        lambda message: (
            complaints.append(f"{message.type}: {message.text}") if message.type in ("error", "warning") else None
        ),
    )
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: complaints.append(f"dialog: {dialog.message}"))
    page.complaints = complaints
    page.set_default_timeout(PATIENCE)
    try:
        yield page
    finally:
        await context.close()


async def sideways(page):
    """Return by how many pixels a page is wider than its window."""
    return await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")


async def violations(page, axe, rules=None):
    """Return the findings of axe-core, one per line."""
    only = {"type": "rule", "values": rules} if rules else {"type": "tag", "values": list(RULES)}
    if not await page.evaluate("typeof window.axe !== 'undefined'"):
        await page.evaluate(axe)
    result = await page.evaluate("only => axe.run(document, {runOnly: only, resultTypes: ['violations']})", only)
    return [f"{violation['id']}: {element['html'][:200]} ({element['failureSummary'][:300]})" for violation in result["violations"] for element in violation["nodes"][:3]]  # fmt: skip
