"""Pages in a browser: the browser's errors and warnings, horizontal scrolling, and the findings of axe-core."""

from contextlib import asynccontextmanager

from dashboard import Dashboard, ReadingSource

# These arguments prevent requests to other hosts, and the use of a GPU.
FLAGS = ("--disable-gpu", "--disable-quic", "--disable-sync", "--disable-component-update", "--disable-background-networking", "--no-first-run")  # fmt: skip
DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
PATIENCE = 120_000  # milliseconds, enough for a busy machine
AXE_RULES = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")


@asynccontextmanager
async def dashboard_url(read, *, is_live=True, **options):
    """Run a dashboard; yield its URL."""
    source = ReadingSource("a test", read, is_live=is_live)
    async with Dashboard(source, **options).open("127.0.0.1", 0) as url:
        yield url


@asynccontextmanager
async def open_page(chromium, url="", **options):
    """Yield a page in a new browser profile. `page.complaints` collects errors, warnings and dialogs."""
    context = await chromium.new_context(base_url=url or None, viewport=DESKTOP, **options)
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


async def overflow(page):
    """Return by how many pixels the page is wider than its window."""
    return await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")


async def axe_findings(page, axe, rules=None):
    """Return the findings of axe-core, one per line."""
    run_only = {"type": "rule", "values": rules} if rules else {"type": "tag", "values": list(AXE_RULES)}
    if not await page.evaluate("typeof window.axe !== 'undefined'"):
        await page.evaluate(axe)
    result = await page.evaluate("runOnly => axe.run(document, {runOnly, resultTypes: ['violations']})", run_only)
    return [f"{violation['id']}: {element['html'][:200]} ({element['failureSummary'][:300]})" for violation in result["violations"] for element in violation["nodes"][:3]]  # fmt: skip
