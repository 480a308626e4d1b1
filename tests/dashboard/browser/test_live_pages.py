"""An open page follows changes of the cluster and keeps focus, scroll position and input. Pages work without script."""

import pytest

from analysis.loading import reading_of
from dashboard import Login
from tests.cli.explain.scenes import claim, fleet, held_claim, in_phase, pod
from tests.dashboard import test_login
from tests.dashboard.browser.fleets import crowded
from tests.dashboard.browser.looking import opened, served
from webhook.state import Features

pytestmark = pytest.mark.asyncio(loop_scope="module")
WAIT = 60_000  # milliseconds
FOCUSED = "document.activeElement.textContent"


class Changing:
    """A cluster in which a pod waits until `place` is called."""

    def __init__(self):
        self.objects = crowded()

    def read(self):
        return reading_of(self.objects, Features())

    def place(self):
        """Bind the waiting pod to a node."""
        kept = [obj for obj in crowded() if obj["metadata"]["name"] != "wants"]
        running = in_phase(pod("wants", "wants", nodeName="n1"), "Running")
        self.objects = [*kept, *fleet(2, 2), held_claim("wants", "wants", on="n1/gpu-0"), running]


async def test_a_pod_changes_from_waiting_to_running_without_a_reload(chromium):
    cluster = Changing()
    async with served(cluster.read, fresh=0.2) as url, opened(chromium, url) as page:
        await page.goto("/waiting")
        await page.get_by_role("link", name="default/wants").wait_for(timeout=WAIT)
        await page.evaluate("document.documentElement.dataset.mine = 'kept'")
        cluster.place()
        await page.get_by_text("No pod that requests devices waits").wait_for(timeout=WAIT)
        assert await page.title() == "Waiting · drawbridge"
        assert await page.evaluate("document.documentElement.dataset.mine") == "kept"  # it is the same page
        assert page.complaints == []


async def test_focus_and_open_details_survive_an_update(chromium):
    cluster = Changing()
    async with served(cluster.read, fresh=0.2) as url, opened(chromium, url) as page:
        await page.goto("/nodes/n0")
        link = page.locator("main").get_by_role("link", name="default/p0", exact=True)
        await link.focus()
        cluster.objects = [*cluster.objects, held_claim("late", "late", on="n0/gpu-1"), in_phase(pod("late", "late", nodeName="n0"), "Running")]  # fmt: skip
        await page.get_by_role("link", name="default/late").first.wait_for(timeout=WAIT)
        assert await page.evaluate(FOCUSED) == "default/p0"
        await page.goto("/claims/default/wants")
        await page.locator("summary").click()
        before = await page.locator("main").get_attribute("data-reading")
        await page.locator("summary").blur()
        await page.wait_for_function(
            "old => document.querySelector('main').dataset.reading !== old", arg=before, timeout=WAIT
        )
        assert await page.locator("details").get_attribute("open") is not None


async def test_a_form_with_input_is_not_updated(chromium):
    cluster = Changing()
    async with served(cluster.read, fresh=0.2) as url, opened(chromium, url) as page:
        await page.goto("/")
        choice = page.get_by_label("By the label")
        await choice.focus()
        before = await page.locator("main").get_attribute("data-reading")
        cluster.place()
        await page.wait_for_timeout(3_000)  # readings come every second
        assert await page.locator("main").get_attribute("data-reading") == before
        await choice.blur()
        await page.get_by_text("2 free, 2 held").wait_for(timeout=WAIT)


async def test_pages_work_without_script(chromium):
    async with served(Changing().read) as url, opened(chromium, url, java_script_enabled=False) as page:
        await page.goto("/")
        assert await page.locator("meta[http-equiv=refresh]").count() == 1
        await page.get_by_role("link", name="Waiting").click()
        await page.get_by_role("link", name="default/wants").click()
        await page.locator("summary", has_text="YAML").click()
        assert await page.get_by_text("resourceClaimName: wants").is_visible()
        await page.get_by_role("searchbox").fill("n0")
        await page.get_by_role("button", name="Find").click()
        await page.get_by_role("link", name="n0", exact=True).click()
        assert await page.get_by_role("heading", level=1).inner_text() == "Node n0"
        await page.get_by_role("link", name="What if").click()
        await page.locator("textarea").fill("{apiVersion: v1, kind: Pod, metadata: {name: q}, spec: {containers: [{name: c, resources: {limits: {nvidia.com/gpu: 1}}}]}}")  # fmt: skip
        await page.locator("main form button").first.click()
        await page.get_by_role("cell", name="default/q").wait_for(timeout=WAIT)


async def test_a_keyboard_reaches_the_content_first_and_then_every_element(chromium):
    async with served(Changing().read) as url, opened(chromium, url) as page:
        await page.goto("/nodes/n0")
        await page.keyboard.press("Tab")
        assert await page.evaluate(FOCUSED) == "Skip to the content"
        await page.keyboard.press("Enter")
        await page.keyboard.press("Tab")
        reached = []
        for _ in range(12):
            reached.append(await page.evaluate(FOCUSED))
            await page.keyboard.press("Tab")
        assert reached[0] == "Which devices can be used together"
        assert "default/p0" in reached


async def test_a_page_of_a_deleted_claim_becomes_not_found(chromium):
    cluster = Changing()
    async with served(cluster.read, fresh=0.2) as url, opened(chromium, url) as page:
        cluster.objects = [*fleet(1, 2), claim("alone")]
        await page.goto("/claims/default/alone")
        cluster.objects = [*fleet(1, 2)]
        await page.get_by_role("heading", name="Not found").wait_for(timeout=WAIT)


async def test_a_user_logs_in_and_out_in_the_browser(chromium):
    login = Login(test_login.Server())
    source = lambda: reading_of(test_login.objects(), Features())  # noqa: E731
    async with served(source, login=login) as url, opened(chromium, url) as page:
        await page.goto("/waiting")
        await page.get_by_label("token").fill("wrong")
        await page.get_by_role("button", name="Log in").click()
        await page.get_by_text("This token is not valid").wait_for(timeout=WAIT)
        await page.get_by_label("token").fill("token-mine")
        await page.get_by_role("button", name="Log in").click()
        await page.get_by_text("nodes with devices").wait_for(timeout=WAIT)
        await page.get_by_role("button", name="Log out").click()
        await page.get_by_label("token").wait_for(timeout=WAIT)
        assert [complaint for complaint in page.complaints if "401" not in complaint] == []
