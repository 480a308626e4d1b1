"""An open page follows changes of the cluster and keeps focus, scroll position and input. Pages work without script."""

import pytest

from analysis.loading import reading_of
from dashboard import Login
from tests.cli.explain.scenes import DRIVER, claim, fleet, held_claim, in_phase, pod
from tests.dashboard import test_login
from tests.dashboard.browser.fleets import fleet_with_waiting_pod
from tests.dashboard.browser.looking import dashboard_url, open_page
from webhook.state import Features

pytestmark = pytest.mark.asyncio(loop_scope="module")
TIMEOUT = 60_000  # milliseconds
FOCUSED_TEXT = "document.activeElement.textContent"


class ChangingCluster:
    """A cluster in which a pod waits until `bind_pod` is called."""

    def __init__(self):
        self.objects = fleet_with_waiting_pod()

    def read(self):
        return reading_of(self.objects, Features())

    def bind_pod(self):
        """Bind the waiting pod to a node."""
        other_objects = [obj for obj in fleet_with_waiting_pod() if obj["metadata"]["name"] != "wants"]
        running = in_phase(pod("wants", "wants", nodeName="n1"), "Running")
        self.objects = [*other_objects, *fleet(2, 2), held_claim("wants", "wants", on="n1/gpu-0"), running]


async def test_a_pod_changes_from_waiting_to_running_without_a_reload(chromium):
    cluster = ChangingCluster()
    async with dashboard_url(cluster.read, fresh=0.2) as url, open_page(chromium, url) as page:
        await page.goto("/waiting")
        await page.get_by_role("link", name="default/wants").wait_for(timeout=TIMEOUT)
        await page.evaluate("document.documentElement.dataset.mark = 'kept'")
        cluster.bind_pod()
        await page.get_by_text("No pod that requests devices waits").wait_for(timeout=TIMEOUT)
        assert await page.title() == "Waiting · drawbridge"
        assert await page.evaluate("document.documentElement.dataset.mark") == "kept"  # the page was not reloaded
        assert page.complaints == []


# Resolves after a new reading, when an update of the page has ended.
NEW_READING = """() => new Promise(resolve => {
  let readings = 0;
  const events = new EventSource("/events");
  events.onmessage = () => ++readings === 2 && fetch(location.href).then(answer => answer.text()).then(() => setTimeout(resolve));
}).then(() => {})"""


async def test_a_click_counts_although_a_reading_arrives_before_its_end(chromium):
    async with dashboard_url(ChangingCluster().read, fresh=0.2) as url, open_page(chromium, url) as page:
        await page.goto("/claims/default/wants")
        await page.locator("summary").hover()
        await page.mouse.down()
        await page.evaluate(NEW_READING)
        await page.mouse.up()
        assert await page.locator("details").get_attribute("open") is not None


async def test_focus_and_open_details_survive_an_update(chromium):
    cluster = ChangingCluster()
    async with dashboard_url(cluster.read, fresh=0.2) as url, open_page(chromium, url) as page:
        await page.goto("/nodes/n0")
        link = page.locator("main").get_by_role("link", name="default/p0", exact=True)
        await link.focus()
        cluster.objects = [*cluster.objects, held_claim("late", "late", on="n0/gpu-1"), in_phase(pod("late", "late", nodeName="n0"), "Running")]  # fmt: skip
        await page.get_by_role("link", name="default/late").first.wait_for(timeout=TIMEOUT)
        assert await page.evaluate(FOCUSED_TEXT) == "default/p0"
        await page.goto("/claims/default/wants")
        await page.locator("summary").click()
        earlier_reading = await page.locator("main").get_attribute("data-reading")
        await page.locator("summary").blur()
        await page.wait_for_function(
            "old => document.querySelector('main').dataset.reading !== old", arg=earlier_reading, timeout=TIMEOUT
        )
        assert await page.locator("details").get_attribute("open") is not None


async def test_a_page_is_not_updated_while_a_field_has_focus(chromium):
    cluster = ChangingCluster()
    async with dashboard_url(cluster.read, fresh=0.2) as url, open_page(chromium, url) as page:
        await page.goto("/")
        choice = page.get_by_label("By the label")
        await choice.focus()
        earlier_reading = await page.locator("main").get_attribute("data-reading")
        cluster.bind_pod()
        await page.wait_for_timeout(3_000)  # readings come every second
        assert await page.locator("main").get_attribute("data-reading") == earlier_reading
        await choice.blur()
        await page.get_by_text("2 of 4", exact=True).wait_for(timeout=TIMEOUT)


async def test_pages_work_without_script(chromium):
    async with (
        dashboard_url(ChangingCluster().read) as url,
        open_page(chromium, url, java_script_enabled=False) as page,
    ):
        await page.goto("/")
        assert await page.locator("meta[http-equiv=refresh]").count() == 1
        await page.get_by_role("link", name="Waiting", exact=True).click()
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
        await page.get_by_role("cell", name="default/q").wait_for(timeout=TIMEOUT)


async def test_the_tab_key_reaches_the_skip_link_before_the_content(chromium):
    async with dashboard_url(ChangingCluster().read) as url, open_page(chromium, url) as page:
        await page.goto("/nodes/n0")
        await page.keyboard.press("Tab")
        assert await page.evaluate(FOCUSED_TEXT) == "Skip to the content"
        await page.keyboard.press("Enter")
        await page.keyboard.press("Tab")
        shown = await page.evaluate("getComputedStyle(document.activeElement, '::after').content")
        assert shown == f'"{DRIVER}/n0/gpu-0: held, default/p0"'  # the holder is visible on focus
        focused_texts = []
        for _ in range(12):
            focused_texts.append(await page.evaluate(FOCUSED_TEXT))
            await page.keyboard.press("Tab")
        assert focused_texts[:2] == ["H", "Which devices can be used together"]
        assert "default/p0" in focused_texts


async def test_the_open_page_of_a_deleted_claim_becomes_not_found(chromium):
    cluster = ChangingCluster()
    async with dashboard_url(cluster.read, fresh=0.2) as url, open_page(chromium, url) as page:
        cluster.objects = [*fleet(1, 2), claim("alone")]
        await page.goto("/claims/default/alone")
        cluster.objects = [*fleet(1, 2)]
        await page.get_by_role("heading", name="Not found").wait_for(timeout=TIMEOUT)


async def test_a_user_logs_in_and_out_in_the_browser(chromium):
    login = Login(test_login.ReviewServer())
    read = lambda: reading_of(test_login.two_tenants(), Features())  # noqa: E731
    async with dashboard_url(read, login=login) as url, open_page(chromium, url) as page:
        await page.goto("/waiting")
        await page.get_by_label("token").fill("wrong")
        await page.get_by_role("button", name="Log in").click()
        await page.get_by_text("This token is not valid").wait_for(timeout=TIMEOUT)
        await page.get_by_label("token").fill("token-mine")
        await page.get_by_role("button", name="Log in").click()
        await page.get_by_text("nodes with devices").wait_for(timeout=TIMEOUT)
        await page.get_by_role("button", name="Log out").click()
        await page.get_by_label("token").wait_for(timeout=TIMEOUT)
        assert [complaint for complaint in page.complaints if "401" not in complaint] == []
