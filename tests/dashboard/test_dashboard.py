"""Pages and JSON of `drawbridge dashboard`: texts of a cluster are escaped, and unknown hosts are refused."""

import json
import re
import socket
from collections import Counter
from contextlib import asynccontextmanager
from urllib.parse import quote

import aiohttp
import msgspec
import pytest

from analysis import explain
from analysis.capacity import Card, DeviceHeld, NodeDevices
from analysis.configuration import ConfigurationInForce
from analysis.errors import Failed
from analysis.loading import Unread, reading_of
from dashboard import Dashboard, ReadingSource, api, pages, waiting
from tests.cli.explain.scenes import DRIVER, claim, fleet, full_fleet, held_claim, pod
from tests.cli.running import run
from tests.dashboard.browser.fleets import busy_fleet
from tests.dashboard.elements import Elements
from tests.limits import PATIENCE
from tests.webhook.pods import configured
from webhook.state import Features

HOSTILE_TEXT = "\"><script>alert(1)</script><img src=x onerror=alert(1)>'&\u202e\x1b[31m"
PAGES = ("/", "/?colour=model", "/waiting", "/quota", "/move", "/together", "/history", "/api", "/find?q=n0", "/nodes/n0", "/nodes/n0/together", "/pods/default/wants", "/claims/default/wants", "/namespaces/default", f"/devices/{DRIVER}/n0/gpu-0")  # fmt: skip


def reading_with(*objects):
    """Return a reading, which is all that the dashboard knows of a cluster, with these objects."""
    return reading_of(list(objects), Features())


def source_of(*objects, **ways):
    """Return a source that always has the same reading with these objects. `ways` read its events and its survey."""
    return ReadingSource("a test", lambda: reading_with(*objects), is_live=False, **ways)


@asynccontextmanager
async def dashboard_session(source, **options):
    """Run a dashboard; yield an HTTP session of a client."""
    async with Dashboard(source, **options).open("127.0.0.1", 0) as url, aiohttp.ClientSession(url) as session:
        yield session


async def text_of(session, path, status=200, **options):
    async with session.get(path, **options) as response:
        text = await response.text()
        assert response.status == status, text
        return text


def crowded_fleet():
    """Return two nodes whose devices are all held, and a pod that requests a device."""
    return [*full_fleet(), claim("wants"), pod("wants", "wants")]


async def test_pages_show_holders_next_steps_and_working_links():
    objects = crowded_fleet()
    async with dashboard_session(source_of(*objects)) as session:
        pages = {path: Elements(await text_of(session, path)) for path in PAGES}
        story = explain.pod_story("default/wants", reading_with(*objects))
        assert story.state.reasons[0].text in pages["/waiting"].text
        assert story.state.reasons[0].text in pages["/pods/default/wants"].text
        assert "default/p0" in pages["/nodes/n0"].text
        assert "/nodes/n0/together" in pages["/nodes/n0"].targets()
        assert "In use; wanted as well:" in pages["/nodes/n0/together"].text
        assert "In use; wanted as well:" in pages["/together"].text
        assert pages["/together"].text.count("n1") > pages["/nodes/n0/together"].text.count("n1"), (
            "the page of all nodes names n1 no more often than the page of n0"
        )
        assert "/nodes/n0" in pages["/find?q=n0"].targets()
        assert "2 held" in pages["/nodes/n0"].text
        for page in pages.values():
            assert page.seen[0] == ("html", {"lang": "en"})
            assert {tag for tag, _ in page.seen} >= {"header", "nav", "main", "footer", "h1", "title"}
            for target in {target for target in page.targets() if target.startswith("/") and "{" not in target}:
                assert await text_of(session, target)


async def test_a_pod_that_does_not_exist_has_no_link():
    paths = ("/nodes/n0", "/claims/default/c0", "/namespaces/default", f"/devices/{DRIVER}/n0/gpu-0")
    async with dashboard_session(source_of(*(obj for obj in full_fleet() if obj["kind"] != "Pod"))) as session:
        for path in paths:
            page = Elements(await text_of(session, path))
            assert ("default/p0 (does not exist)" in page.text) is ("/claims/" not in path), path
            assert not any("/pods/" in target for target in page.targets()), path


async def test_a_namespace_has_one_row_for_each_holder_and_node():
    big = held_claim("big", "p")
    [result] = big["status"]["allocation"]["devices"]["results"]
    big["status"]["allocation"]["devices"]["results"] = [result | {"device": f"gpu-{i}"} for i in range(64)]
    async with dashboard_session(source_of(*fleet(1, 64), big, pod("p", "big", nodeName="n0"))) as session:
        page = Elements(await text_of(session, "/namespaces/default"))
    assert sum("/claims/" in target for target in page.targets()) == 1
    assert "gpu-4 and 59 more" in page.text


async def test_the_first_page_names_the_faults_of_the_cluster():
    objects = [obj for obj in full_fleet() if obj["metadata"]["name"] != "p0"]
    async with dashboard_session(source_of(*objects)) as session:
        page = await text_of(session, "/")
        assert '<b class="warning">warning</b>' in page
        assert '<a href="/claims/default/c0">ResourceClaim/default/c0</a>' in page
    async with dashboard_session(source_of(*full_fleet())) as session:
        assert "Faults" not in await text_of(session, "/")


def numbers_in(texts):
    """Add up the used devices, and all devices, of texts such as `3 of 8 used`."""
    pairs = [re.search(r"([0-9,]+) of ([0-9,]+)", text).groups() for text in texts]
    return tuple(sum(int(number.replace(",", "")) for number in column) for column in zip(*pairs, strict=True))


async def test_the_headline_the_products_the_nodes_and_the_cells_have_one_count():
    """The fleet has partitioned cards, shares, devices of a plugin, and a cordoned node."""
    async with dashboard_session(source_of(*busy_fleet())) as session:
        page = await text_of(session, "/")
        total = json.loads(await text_of(session, "/api/v1/fleet"))["totals"]
    headline, products, nodes = re.findall(r'<ul class="(?:tiles|products|nodes)">.*?</ul>', page)
    used, devices = numbers_in(re.findall("<b>([0-9]+ of [0-9]+)</b>", headline))
    assert (used, devices) == (84, 176) == tuple(sum(row[key] for row in total) for key in ("used", "total"))
    assert numbers_in(re.findall("</b>(.*? used)", products)) == (used, devices)
    assert numbers_in(re.findall("<small>(.*? used)", nodes)) == (used, devices)
    cells = Counter(re.findall('class="cell ([a-z]+)', nodes))
    assert cells == {"held": 68, "shared": 10, "plugin": 6, "free": 84, "unusable": 8}
    legend = page[page.index('class="legend"') : page.index(nodes)]
    assert {int(number) for number in re.findall(", ([0-9]+)</li>", legend)} == set(cells.values())
    assert f"<b>{cells['free']}</b><span>devices free" in headline
    assert f"<b>{cells['unusable']}</b><span>devices not usable" in headline


async def test_a_cell_of_a_shared_device_has_its_used_percentage_and_its_holder():
    async with dashboard_session(source_of(*busy_fleet())) as session:
        page = Elements(await text_of(session, "/"))
    labels = {attributes["aria-label"]: attributes["class"] for tag, attributes in page.seen if "aria-label" in attributes and tag == "a"}  # fmt: skip
    assert labels[f"{DRIVER}/n3/gpu-0: shared, default/train-3-0"] == "cell shared u3"  # 30 of 80 GiB
    assert labels["example.com/card: plugin, default/batch-1"] == "cell plugin"
    [partitioned] = [label for label in labels if "default/slice" in label]
    assert partitioned.startswith("gpu.nvidia.com/slice-1/gpu-0-counter-set: shared")


@pytest.mark.parametrize(
    ("free", "percentage"),
    [({"a/p/0": 0.5, "b/p/0": 0.8}, 50), ({"a/p/0": 0.0, "a/p/1": 1.0, "a/p/2": 1.0}, 33), ({}, 0)],
    ids=["two drivers publish the card", "one driver publishes its partitions", "without hardware"],
)
def test_the_used_percentage_of_a_card_is_that_of_its_hardware(free, percentage):
    devices = tuple(DeviceHeld(device=name, state="shared", card="a/p/0") for name in free or ("a/p/9",))
    assert pages._used_percentage(Card(NodeDevices(node="n", devices=devices), "shared", devices), free) == percentage


async def test_a_page_of_nodes_draws_a_limited_number_of_cells(monkeypatch):
    monkeypatch.setattr(pages, "_CELLS", 10)
    async with dashboard_session(source_of(*fleet(2, 8))) as session:
        page = await text_of(session, "/")
    assert page.count('<span class="cell free" title="gpu.example.com/n') == 10
    assert page.count("and 3 more") == 2


async def test_a_fleet_of_many_nodes_is_a_tile_for_each_group(monkeypatch):
    monkeypatch.setattr(pages, "NODES_DRAWN", 3)
    objects = [*fleet(4, 4), *(held_claim(f"c{i}", on=f"n0/gpu-{i}") for i in range(3))]
    for i, obj in enumerate(obj for obj in objects if obj["kind"] == "Node"):
        obj["metadata"]["labels"] = {"topology.kubernetes.io/rack": f"rack-{i % 2}"}
    async with dashboard_session(source_of(*objects)) as session:
        page = await text_of(session, "/")
        assert re.findall('<li class="(heat[0-9])">', page) == ["heat2", "heat0"]
        assert "<b>38% used, 2 nodes</b>" in page
        [opened] = [target for target in Elements(page).targets() if "shelf=rack-0" in target]
        assert {"/nodes/n0", "/nodes/n2"} <= set(
            Elements(await text_of(session, opened.replace("&amp;", "&"))).targets()
        )
        assert "/nodes/n0" not in Elements(page).targets()


async def test_the_waiting_page_names_a_configuration_other_than_the_default():
    in_force = ConfigurationInForce(configured(mode="observe"), "a.yaml")
    reading = reading_of(fleet(), Features(), in_force=in_force)
    async with dashboard_session(ReadingSource("a test", lambda: reading, is_live=False)) as session:
        assert "configuration: a.yaml, mode observe" in await text_of(session, "/waiting")
    async with dashboard_session(source_of(*fleet())) as session:
        assert "configuration:" not in await text_of(session, "/waiting")


async def test_cluster_text_becomes_neither_markup_nor_a_foreign_link():
    objects = json.loads(json.dumps(crowded_fleet()))
    for obj in objects:
        obj["metadata"].setdefault("labels", {})["topology.kubernetes.io/zone"] = HOSTILE_TEXT
        obj["metadata"]["labels"][HOSTILE_TEXT] = "x"
        obj["metadata"].setdefault("annotations", {})["a"] = HOSTILE_TEXT
        if obj["kind"] == "Pod":
            obj["spec"]["schedulerName"] = HOSTILE_TEXT
            condition = {"type": "PodScheduled", "status": "False", "reason": HOSTILE_TEXT, "message": HOSTILE_TEXT}
            obj.setdefault("status", {})["conditions"] = [condition]
    hostile_pod = json.loads(json.dumps(pod("odd")))
    hostile_pod["metadata"]["name"] = hostile_pod["metadata"]["namespace"] = HOSTILE_TEXT.replace("/", "?")
    hostile_pod["spec"]["resourceClaims"] = [{"name": HOSTILE_TEXT, "resourceClaimName": "../../" + HOSTILE_TEXT}]
    hostile_pod["spec"]["containers"] = [
        {"name": HOSTILE_TEXT, "image": HOSTILE_TEXT, "resources": {"limits": {"javascript:alert/gpu": "1"}}}
    ]
    source = source_of(*objects, hostile_pod)
    async with dashboard_session(source) as session:
        visited = set()
        paths = ["/", "/waiting", "/quota", "/api", "/find?q=%3Cscript", "/find?q=wants", "/nodes/n0", "/none"]
        while paths:
            path = paths.pop()
            if path in visited or len(visited) > 80 or "{" in path or path.startswith("/api/v1"):
                continue
            visited.add(path)
            async with session.get(path) as response:
                if response.content_type != "text/html":
                    continue
                page = Elements(await response.text())
            scripts = [attributes for tag, attributes in page.seen if tag == "script"]
            assert scripts in ([], [{"src": "/script.js", "defer": "defer", "data-again": "30"}]), path
            assert not {tag for tag, _ in page.seen} & {"img", "iframe", "object", "style", "base"}, path
            for _, attributes in page.seen:
                assert not [key for key in attributes if key.startswith("on") or key == "style"], path
            for target in page.targets():
                assert target.startswith(("/", "#content")), (path, target)
                assert not target.startswith("//"), (path, target)
            assert "\x1b" not in page.text
            assert "\u202e" not in page.text
            paths += [target for target in page.targets() if target.startswith("/") and target != "/style.css"]
        assert len(visited) > 10
        name = quote(HOSTILE_TEXT.replace("/", "?"), safe="")
        assert f"/pods/{name}/{name}" in visited
        assert "<script>" in Elements(await text_of(session, f"/pods/{name}/{name}")).text


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("GET", "/", {}, 200),
        ("GET", "/style.css", {}, 200),
        ("GET", "/api/v1/fleet", {}, 200),
        ("HEAD", "/", {}, 200),
        ("GET", "/none", {}, 404),
        ("GET", "/nodes/none", {}, 404),
        ("GET", "/nodes/none/together", {}, 404),
        ("GET", "/api/v1/pods/default/none", {}, 404),
        ("GET", "/?at=-1&by=%00&shelf=%F0", {}, 200),
        ("GET", "/?at=99999999999999999999", {}, 200),
        ("POST", "/", {}, 405),
        ("DELETE", "/pods/default/wants", {}, 405),
        ("GET", "/", {"Host": "rebound.example.com"}, 403),
        ("GET", "/", {"Host": "localhost.example.com:80"}, 403),
        ("GET", "/api/v1/fleet", {"Origin": "https://example.com"}, 403),
    ],
)
async def test_responses_have_security_headers_and_errors_name_no_pod(method, path, headers, status):
    async with (
        dashboard_session(source_of(*crowded_fleet())) as session,
        session.request(method, path, headers=headers) as response,
    ):
        assert response.status == status
        assert "default/p0" not in await response.text() or status == 200
        policy = response.headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; style-src 'self'")
        assert "frame-ancestors 'none'" in policy
        assert response.headers["X-Frame-Options"] == "DENY"
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert response.headers["Cache-Control"] == "no-store"
        assert response.headers["Referrer-Policy"] == "same-origin"


async def test_a_too_long_path_is_refused():
    async with dashboard_session(source_of(*crowded_fleet())) as session, session.get("/" + "a" * 20_000) as response:
        assert response.status == 400
        assert "default/p0" not in await response.text()


async def test_the_json_matches_the_openapi_document():
    async with dashboard_session(source_of(*crowded_fleet())) as session:
        document = json.loads(await text_of(session, "/api/v1/openapi.json"))
        path_fields = {"namespace": "default", "name": "wants", "driver": DRIVER, "pool": "n0", "device": "gpu-0"}
        assert set(document["paths"]) == {
            *(endpoint.path for endpoint in api.ENDPOINTS),
            "/api/v1/what-if",
            "/api/v1/simulate",
            "/api/v1/move",
            "/api/v1/history",
        }
        linked_paths = {
            target
            for target in Elements(await text_of(session, "/api")).targets()
            if "/v1/" in target and "openapi" not in target
        }
        assert set(document["paths"]) >= linked_paths >= {"/api/v1/move", "/api/v1/history"}
        assert msgspec.json.decode(await text_of(session, "/api/v1/move"), type=api.MoveShown).read_at
        assert msgspec.json.decode(await text_of(session, "/api/v1/history"), type=api.HistoryShown).read_at
        for endpoint in api.ENDPOINTS:
            fields = path_fields | ({"name": "n0"} if "/nodes/" in endpoint.path else {})
            answer = msgspec.json.decode(await text_of(session, endpoint.path.format(**fields)), type=endpoint.type)
            assert answer.read_at
            schema = document["paths"][endpoint.path]["get"]["responses"]["200"]["content"]["application/json"][
                "schema"
            ]
            assert schema["$ref"].rpartition("/")[2] in document["components"]["schemas"]


@pytest.mark.parametrize(
    ("error", "notice"),
    [
        (Failed("the API server is away", "try again when it answers"), "the API server is away (try again when it answers)"),
        (RuntimeError("a defect"), "the reading failed: the log of the dashboard says why"),
    ],
    ids=["an expected error", "a defect"],
)  # fmt: skip
async def test_a_failed_read_is_reported_beside_the_previous_reading(error, notice):
    is_readable = [False, True, False, True]  # by read; the last entry also counts for later reads

    def read():
        if is_readable.pop(0) if is_readable[1:] else is_readable[0]:
            return reading_with(*crowded_fleet())
        raise error

    async with dashboard_session(ReadingSource("a test", read, is_live=True), fresh=0.0) as session:
        assert notice in await text_of(session, "/", 503, timeout=aiohttp.ClientTimeout(PATIENCE))
        assert "nodes with devices" in await text_of(session, "/")
        while f"This page is out of date: {notice}" not in (page := await text_of(session, "/")):
            assert "nodes with devices" in page
        while notice in (page := await text_of(session, "/")):
            assert "nodes with devices" in page


async def test_a_not_found_page_mentions_an_unread_kind():
    reading_without_pods = reading_of(
        [obj for obj in crowded_fleet() if obj["kind"] != "Pod"], Features(), unread=[Unread("pods", "forbidden")]
    )
    async with dashboard_session(ReadingSource("a test", lambda: reading_without_pods, is_live=False)) as session:
        assert "or its kind could not be read" in await text_of(session, "/pods/default/p0", 404)
    async with dashboard_session(source_of(*crowded_fleet())) as session:
        assert "could not be read" not in await text_of(session, "/pods/default/p9", 404)


async def test_pages_without_entries_explain_why():
    async with dashboard_session(source_of(pod("web"), claim("wants"), pod("wants", "wants"))) as session:
        page = await text_of(session, "/")
        assert "kubectl get resourceslices" in page
        assert "/pods/default/wants" in page
    async with dashboard_session(source_of(pod("web"))) as session:
        assert "No pod that requests devices waits" in await text_of(session, "/waiting")
        assert "the use of devices is not limited" in await text_of(session, "/quota")


async def test_a_large_shelf_is_shown_in_pages_of_bounded_size():
    """A shelf is a group of nodes, here of all nodes."""
    async with dashboard_session(source_of(*fleet(450, 8))) as session:
        first_page = await text_of(session, "/?by=&shelf=all%20nodes")
        last_page = Elements(await text_of(session, "/?by=&shelf=all%20nodes&at=400"))
        assert len(first_page) < 200_000
        assert sum("/nodes/" in target for target in last_page.targets()) == 50
        assert len(await text_of(session, "/")) < 20_000


async def test_a_pod_without_a_search_shows_the_schedulers_message(monkeypatch):
    """The dashboard searches for reasons with a limited number of steps, in this test with none."""
    monkeypatch.setattr(waiting, "REASONS", 0)
    objects = crowded_fleet()
    condition = {"type": "PodScheduled", "status": "False", "message": "0/2 nodes are available"}
    for obj in objects:
        if obj["metadata"]["name"] == "wants" and obj["kind"] == "Pod":
            obj["status"] = {"phase": "Pending", "conditions": [condition]}
    async with dashboard_session(source_of(*objects)) as session:
        [row] = json.loads(await text_of(session, "/api/v1/waiting"))["waiting"]
        assert (row["pod"], row["reason"]) == ("default/wants", "its scheduler says: 0/2 nodes are available")


def test_listening_beyond_loopback_without_a_login_is_refused():
    result = run("dashboard", "--listen", "0.0.0.0:0", "-f", "manifests/examples/fleet")
    assert result.exit_code == 2
    assert "is not on loopback" in result.stderr


def test_a_port_in_use_is_reported():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        result = run(
            "dashboard", "--listen", f"127.0.0.1:{listener.getsockname()[1]}", "-f", "manifests/examples/fleet"
        )
    assert result.exit_code == 3
    assert "choose another port" in result.stderr
