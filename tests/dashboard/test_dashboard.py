"""Pages and JSON of `drawbridge dashboard`: texts of a cluster are escaped, and unknown hosts are refused."""

import json
import socket
from contextlib import asynccontextmanager
from urllib.parse import quote

import aiohttp
import msgspec
import pytest

from analysis import explain
from analysis.configuration import ConfigurationInForce
from analysis.loading import Unread, reading_of
from dashboard import Dashboard, PictureSource, api
from rendering.exits import CommandFailed
from tests.cli.elements import Elements
from tests.cli.explain.scenes import DRIVER, claim, fleet, full_fleet, pod
from tests.cli.running import run
from tests.limits import PATIENCE
from tests.webhook.pods import configured
from webhook.state import Configuration, Features

HOSTILE = "\"><script>alert(1)</script><img src=x onerror=alert(1)>'&\u202e\x1b[31m"
PAGES = ("/", "/?colour=model", "/waiting", "/quota", "/move", "/together", "/history", "/api", "/find?q=n0", "/nodes/n0", "/nodes/n0/together", "/pods/default/wants", "/claims/default/wants", "/namespaces/default", f"/devices/{DRIVER}/n0/gpu-0")  # fmt: skip


def scene(*objects):
    return reading_of(list(objects), Features())


def source_of(*objects):
    return PictureSource("a test", lambda: scene(*objects), lives=False)


@asynccontextmanager
async def served(source, **seconds):
    async with Dashboard(source, **seconds).open("127.0.0.1", 0) as url, aiohttp.ClientSession(url) as session:
        yield session


async def text_of(session, path, status=200, **options):
    async with session.get(path, **options) as response:
        text = await response.text()
        assert response.status == status, text
        return text


def crowded():
    """Two nodes whose devices are all held, and a pod that requests one."""
    return [*full_fleet(), claim("wants"), pod("wants", "wants")]


async def test_the_pages_show_holders_and_waiting_pods_as_commands_do():
    objects = crowded()
    async with served(source_of(*objects)) as session:
        pages = {path: Elements(await text_of(session, path)) for path in PAGES}
        story = explain.pod_story("default/wants", scene(*objects), Configuration())
        assert story.next_step.message in pages["/waiting"].text
        assert story.next_step.message in pages["/pods/default/wants"].text
        assert "default/p0" in pages["/nodes/n0"].text
        assert "/nodes/n0/together" in pages["/nodes/n0"].targets()
        assert "In use; wanted as well:" in pages["/nodes/n0/together"].text
        assert "In use; wanted as well:" in pages["/together"].text
        assert pages["/together"].text.count("n1") > pages["/nodes/n0/together"].text.count("n1"), "of every node"
        assert "/nodes/n0" in pages["/find?q=n0"].targets()
        assert (
            "2 devices" in pages["/nodes/n0"].seen[-0][1].get("aria-label", "") or "2 held" in pages["/nodes/n0"].text
        )
        for page in pages.values():
            assert page.seen[0][1] == {"lang": "en"}
            assert {tag for tag, _ in page.seen} >= {"header", "nav", "main", "footer", "h1", "title"}
            for target in {target for target in page.targets() if target.startswith("/") and "{" not in target}:
                assert await text_of(session, target)


async def test_every_page_names_a_configuration_that_is_not_the_default():
    in_force = ConfigurationInForce(configured(mode="observe"), "a.yaml")
    whole = reading_of(fleet(), Features(), in_force=in_force)
    async with served(PictureSource("a test", lambda: whole, lives=False)) as session:
        assert "configuration: a.yaml, mode observe" in await text_of(session, "/waiting")
    async with served(source_of(*fleet())) as session:
        assert "configuration:" not in await text_of(session, "/waiting")


async def test_cluster_text_becomes_neither_markup_nor_a_foreign_link():
    objects = json.loads(json.dumps(crowded()))
    for obj in objects:
        obj["metadata"].setdefault("labels", {})["topology.kubernetes.io/zone"] = HOSTILE
        obj["metadata"]["labels"][HOSTILE] = "x"
        obj["metadata"].setdefault("annotations", {})["a"] = HOSTILE
        if obj["kind"] == "Pod":
            obj["spec"]["schedulerName"] = HOSTILE
            condition = {"type": "PodScheduled", "status": "False", "reason": HOSTILE, "message": HOSTILE}
            obj.setdefault("status", {})["conditions"] = [condition]
    odd = json.loads(json.dumps(pod("odd")))
    odd["metadata"]["name"] = odd["metadata"]["namespace"] = HOSTILE.replace("/", "?")
    odd["spec"]["resourceClaims"] = [{"name": HOSTILE, "resourceClaimName": "../../" + HOSTILE}]
    odd["spec"]["containers"] = [
        {"name": HOSTILE, "image": HOSTILE, "resources": {"limits": {"javascript:alert/gpu": "1"}}}
    ]
    source = source_of(*objects, odd)
    async with served(source) as session:
        seen = set()
        todo = ["/", "/waiting", "/quota", "/api", "/find?q=%3Cscript", "/find?q=wants", "/nodes/n0", "/none"]
        while todo:
            path = todo.pop()
            if path in seen or len(seen) > 80 or "{" in path or path.startswith("/api/v1"):
                continue
            seen.add(path)
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
            todo += [target for target in page.targets() if target.startswith("/") and target != "/style.css"]
        assert len(seen) > 10
        name = quote(HOSTILE.replace("/", "?"), safe="")
        assert f"/pods/{name}/{name}" in seen
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
        ("GET", "/" + "a" * 20_000, {}, 431),
    ],
)
async def test_every_answer_forbids_other_origins_and_unknown_hosts(method, path, headers, status):
    async with served(source_of(*crowded())) as session, session.request(method, path, headers=headers) as response:
        assert response.status == status
        assert "default/p0" not in await response.text() or status == 200
        if len(path) < 9000:  # a response to a head that is too long has no headers of ours
            policy = response.headers["Content-Security-Policy"]
            assert policy.startswith("default-src 'none'; style-src 'self'")
            assert "frame-ancestors 'none'" in policy
            assert response.headers["X-Frame-Options"] == "DENY"
            assert response.headers["X-Content-Type-Options"] == "nosniff"
            assert response.headers["Cache-Control"] == "no-store"
            assert response.headers["Referrer-Policy"] == "same-origin"


async def test_the_json_matches_the_openapi_document():
    async with served(source_of(*crowded())) as session:
        document = json.loads(await text_of(session, "/api/v1/openapi.json"))
        words = {"namespace": "default", "name": "wants", "driver": DRIVER, "pool": "n0", "device": "gpu-0"}
        assert set(document["paths"]) == {
            *(endpoint.path for endpoint in api.ENDPOINTS),
            "/api/v1/what-if",
            "/api/v1/move",
            "/api/v1/history",
        }
        assert (
            set(document["paths"])
            >= {
                target
                for target in Elements(await text_of(session, "/api")).targets()
                if "/v1/" in target and "openapi" not in target
            }
            >= {"/api/v1/move", "/api/v1/history"}
        )
        assert msgspec.json.decode(await text_of(session, "/api/v1/move"), type=api.MoveShown).read_at
        assert msgspec.json.decode(await text_of(session, "/api/v1/history"), type=api.HistoryShown).read_at
        for endpoint in api.ENDPOINTS:
            named = words | ({"name": "n0"} if "/nodes/" in endpoint.path else {})
            answer = msgspec.json.decode(await text_of(session, endpoint.path.format(**named)), type=endpoint.type)
            assert answer.read_at
            schema = document["paths"][endpoint.path]["get"]["responses"]["200"]["content"]["application/json"][
                "schema"
            ]
            assert schema["$ref"].rpartition("/")[2] in document["components"]["schemas"]


async def test_a_failed_read_is_reported_and_the_previous_picture_stays():
    answers = [False, True, False]

    def read():
        if answers.pop(0) if answers[1:] else answers[0]:
            return scene(*crowded())
        raise CommandFailed("the API server is away", "try again when it answers")

    async with served(PictureSource("a test", read, lives=True), fresh=0.0) as session:
        assert "the API server is away (try again when it answers)" in await text_of(session, "/", 503)
        assert "nodes with devices" in await text_of(session, "/")
        while "This page is out of date: the API server is away" not in (page := await text_of(session, "/")):
            assert "nodes with devices" in page
        assert json.loads(await text_of(session, "/api/v1/fleet"))["problem"].startswith("the API server is away")


async def test_an_internal_error_while_reading_does_not_stop_the_dashboard():
    answers = [False, True, False, True]

    def read():
        if answers.pop(0) if answers[1:] else answers[0]:
            return scene(*crowded())
        raise RuntimeError("a defect")

    async with served(PictureSource("a test", read, lives=True), fresh=0.0) as session:
        notice = "the reading failed: the log of the dashboard says why"
        assert notice in await text_of(session, "/", 503, timeout=aiohttp.ClientTimeout(PATIENCE))
        assert "nodes with devices" in await text_of(session, "/")
        while notice not in (page := await text_of(session, "/")):
            assert "nodes with devices" in page
        while notice in (page := await text_of(session, "/")):
            assert "nodes with devices" in page


async def test_an_object_of_an_unread_kind_is_not_called_missing():
    partial = reading_of([obj for obj in crowded() if obj["kind"] != "Pod"], Features(), unread=[Unread("pods", "so")])
    async with served(PictureSource("a test", lambda: partial, lives=False)) as session:
        assert "or its kind could not be read" in await text_of(session, "/pods/default/p0", 404)
    async with served(source_of(*crowded())) as session:
        assert "could not be read" not in await text_of(session, "/pods/default/p9", 404)


async def test_pages_without_devices_or_waiting_pods_say_what_to_do():
    async with served(source_of(pod("web"))) as session:
        assert "kubectl get resourceslices" in await text_of(session, "/")
        assert "No pod that requests devices waits" in await text_of(session, "/waiting")
        assert "the use of devices is not limited" in await text_of(session, "/quota")


async def test_a_large_shelf_is_shown_in_pages_of_bounded_size():
    async with served(source_of(*fleet(450, 8))) as session:
        first = await text_of(session, "/?by=&shelf=all%20nodes")
        last = Elements(await text_of(session, "/?by=&shelf=all%20nodes&at=400"))
        assert len(first) < 200_000
        assert sum("/nodes/" in target for target in last.targets()) == 50
        assert len(await text_of(session, "/")) < 20_000


async def test_pods_beyond_the_search_limit_show_the_schedulers_message():
    objects = crowded()
    condition = {"type": "PodScheduled", "status": "False", "message": "0/2 nodes are available"}
    for obj in objects:
        if obj["metadata"]["name"] == "wants" and obj["kind"] == "Pod":
            obj["status"] = {"phase": "Pending", "conditions": [condition]}
    async with served(source_of(*objects), search=-1.0) as session:
        [row] = json.loads(await text_of(session, "/api/v1/waiting"))["waiting"]
        assert (row["pod"], row["reason"]) == ("default/wants", "0/2 nodes are available")


def test_without_a_login_pages_are_served_on_loopback_only():
    result = run("dashboard", "--listen", "0.0.0.0:0", "-f", "manifests/examples/fleet")
    assert result.exit_code == 2
    assert "is not on loopback" in result.stderr


def test_a_port_in_use_is_reported():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        result = run("dashboard", "--listen", f"127.0.0.1:{taken.getsockname()[1]}", "-f", "manifests/examples/fleet")
    assert result.exit_code == 3
    assert "choose another port" in result.stderr
