"""Rights on the dashboard: a token is required, and a tenant finds no name of another namespace on any page."""

import asyncio
import json
import re
import ssl
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_network

import aiohttp
import pytest
from multidict import CIMultiDict

from analysis.capacity import devices_of_nodes
from analysis.configuration import ConfigurationInForce
from analysis.loading import reading_of
from certs import authority
from cluster.errors import Unavailable
from dashboard import Dashboard, Login, certificate, login
from dashboard.tenants import for_tenant
from dra.wire import encode
from serving.authentication import Account, TokenReviews
from serving.http import Head, StatusError
from tests.cli.explain.scenes import DRIVER, claim, fleet, pod
from tests.cli.running import run
from tests.dashboard.elements import Elements
from tests.dashboard.test_dashboard import source_of, text_of
from tests.waiting import until
from tests.webhook.pods import configured
from webhook.state import Features

PAGES = ("/", "/?colour=namespace", "/?by=&shelf=all+nodes&colour=namespace", "/waiting", "/quota", "/move", "/api/v1/move", "/history", "/api/v1/history", "/find?q=secret", "/find?q=a", "/nodes/n0", "/namespaces/secret", "/pods/mine/wants", "/claims/mine/wants", "/devices/{driver}/n0/gpu-0", "/api/v1/fleet", "/api/v1/waiting", "/api/v1/quotas", "/api/v1/pods/mine/wants", "/api/v1/devices/{driver}/n0/gpu-0", "/api/v1/claims/secret/secret-claim", "/api/v1/pods/secret/secret-holder", "/pods/secret/secret-holder", "/what-if", "/what-if?remove=n0", "/api/v1/what-if?add=n0%3D2&remove=n0")  # fmt: skip


class ReviewServer:
    """An API server that reviews tokens and rights.

    The account `all` may list everything, `half` only pods, and every other account the namespace of its own name, unless
    it is `removed`.
    """

    def __init__(self):
        self.is_away, self.reviews, self.failures, self.removed = False, 0, 0, ""

    async def create(self, resource, obj):
        await asyncio.sleep(0)
        if self.is_away:
            self.failures += 1
            raise Unavailable("down")
        self.reviews += 1
        spec = obj["spec"]
        if resource.kind == "TokenReview":
            name = spec["token"].removeprefix("token-")
            user = {"username": name, "groups": ["people"], "uid": "1", "extra": {"a": ["b"]}}
            return {"status": {"authenticated": name != spec["token"], "user": user}}
        assert (spec["groups"], spec["uid"], spec["extra"].keys()) == (["people"], "1", {"a"})
        namespace = spec["resourceAttributes"]["namespace"]
        may_list_all = spec["user"] == "all" or (namespace and namespace == spec["user"] != self.removed)
        may_list_pods = spec["user"] == "half" and spec["resourceAttributes"]["resource"] == "pods"
        return {"status": {"allowed": bool(may_list_all or may_list_pods)}}


def mark_secret(obj):
    """Mark every text of an object that may contain a tenant's secret with the word `secret`; return the object."""
    name = obj["metadata"]["name"]
    obj["metadata"] |= {"namespace": "secret", "name": f"secret-{name}", "uid": f"uid-{name}"}
    obj["metadata"] |= {"labels": {"secret-label": "secret"}, "annotations": {"secret-annotation": "secret"}}
    return obj


def two_tenants():
    """Return namespace `secret` with a holder and a waiting pod, marked in every field, and namespace `mine` with a pod that waits for them."""
    secret_claim = mark_secret(claim("claim"))
    secret_claim["spec"]["devices"]["requests"][0]["name"] = "secret-request"
    secret_claim["spec"]["devices"]["config"] = [{"opaque": {"driver": DRIVER, "parameters": {"secret": "secret"}}}]
    results = [{"request": "secret-request", "driver": DRIVER, "pool": "n0", "device": f"gpu-{i}"} for i in range(2)]
    holder = mark_secret(pod("holder", "secret-claim"))
    holder["spec"] |= {"nodeName": "n0", "serviceAccountName": "secret", "nodeSelector": {"secret": "secret"}}
    holder["spec"]["containers"] = [{"name": "secret", "env": [{"name": "secret", "value": "secret"}]}]
    consumer = {"resource": "pods", "name": "secret-holder", "uid": "uid-holder"}
    secret_claim["status"] = {"allocation": {"devices": {"results": results}}, "reservedFor": [consumer]}
    waiting, broken = mark_secret(pod("waiting", "secret-none")), mark_secret(claim("broken"))
    broken["spec"] = {"devices": 5}
    waiting["spec"]["containers"] = [{"name": "secret", "resources": {"limits": {"example.com/gpu": "1"}}}]
    quota = {"apiVersion": "drawbridge.dev/v1alpha1", "kind": "DeviceQuota", "metadata": {"name": "secret", "namespace": "secret"}, "spec": {"limits": [{"key": "secret", "hard": "1", "devices": {}}]}}  # fmt: skip
    objects_of_mine = [claim("wants"), pod("wants", "wants")]
    for obj in objects_of_mine:
        obj["metadata"]["namespace"] = "mine"
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "secret"}}
    return [*fleet(nodes=1), secret_claim, holder, waiting, broken, quota, namespace, *objects_of_mine]


@asynccontextmanager
async def login_session(server=None, more=(), proxies=(), **options):
    """Run a dashboard with a login; yield an HTTP session of a client. `more` are further objects of the cluster."""
    login = Login(server or ReviewServer(), proxies)
    async with (
        Dashboard(source_of(*two_tenants(), *more), login=login).open("127.0.0.1", 0) as url,
        aiohttp.ClientSession(url, **options) as session,
    ):
        yield session


def bearer_header(user):
    return {"Authorization": f"Bearer token-{user}"}


async def read_as(user, session, path, status=200):
    """Return the text that this account gets at a path."""
    return await text_of(session, path, status, headers=bearer_header(user))


async def test_a_tenant_sees_no_name_of_another_namespace():
    """An administrator sees the names of all namespaces."""
    async with login_session() as session:
        for template in PAGES:
            path = template.format(driver=DRIVER)
            async with session.get(path, headers=bearer_header("mine")) as answer:
                text = re.sub(r"(q|value)=\"?secret|&#x27;secret&#x27;|Namespace secret", "", await answer.text())
                assert "secret" not in text, path
        page = Elements(await read_as("mine", session, "/nodes/n0"))
        assert "2 held" in page.text
        for user, pods in (("mine", []), ("all", ["secret/secret-holder"])):
            answer = json.loads(await read_as(user, session, "/api/v1/what-if?remove=n0"))
            assert [hit["pod"] for hit in answer["found"]["pods"]] == pods
        async with session.post("/api/v1/simulate?remove=n0", headers=bearer_header("mine")) as answer:
            assert (await answer.json())["found"]["pods"] == []
        async with session.post("/api/v1/simulate?remove=n0") as answer:
            assert answer.status == 401
        assert "(others)/pod-1" in page.text
        assert "secret/secret-holder" in await read_as("all", session, "/nodes/n0")


async def test_a_blocking_claim_of_another_tenant_has_no_name():
    async with login_session() as session:
        body = json.loads(await read_as("mine", session, "/api/v1/pods/mine/wants"))["pod"]
        assert [obstacle["subject"] for obstacle in body["prospect"]["wayOut"]["obstacles"]] == ["Pod/(others)/pod-1"]
        assert "secret" not in json.dumps(body["prospect"])
        rows = json.loads(await read_as("mine", session, "/api/v1/waiting"))["waiting"]
        assert [row["pod"] for row in rows] == ["mine/wants"]


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer x"}, {"Authorization": "Basic token-all"}, {"Cookie": "__Host-drawbridge=x"}])  # fmt: skip
async def test_pages_require_a_valid_token(headers):
    async with login_session() as session:
        for path in PAGES:
            async with session.get(path.format(driver=DRIVER), headers=headers) as answer:
                assert answer.status == 401
                assert answer.headers["WWW-Authenticate"] == "Bearer"
                assert "n0" not in await answer.text()


@pytest.mark.parametrize(
    ("peer", "header", "client"),
    [
        ("10.1.2.3", "198.51.100.7", "198.51.100.7"),
        ("10.1.2.3", "192.0.2.1, 198.51.100.7, 10.9.9.9", "198.51.100.7"),
        ("10.1.2.3", "", "10.1.2.3"),
        ("10.1.2.3", "unknown", "10.1.2.3"),
        ("192.0.2.5", "198.51.100.7", "192.0.2.5"),
    ],
    ids=["a proxy", "two proxies, and a forged address", "no header", "no address", "no proxy"],
)
async def test_only_trusted_proxies_name_the_client_whose_tokens_are_limited(monkeypatch, peer, header, client):
    peers = []

    async def account_of(_, token, peer):
        peers.append(peer)
        return Account(token)

    monkeypatch.setattr(TokenReviews, "account_of", account_of)
    head = Head("GET", "/", "", CIMultiDict({"X-Forwarded-For": header} if header else {}), 0, peer=peer)
    await Login(ReviewServer(), [ip_network("10.0.0.0/8")]).account("token", head)
    assert peers == [client]


@pytest.mark.long
async def test_invalid_tokens_behind_a_proxy_refuse_no_new_viewer_of_another_address():
    """All requests have the address of the proxy, which names its clients. The times of the reviews are those of an API server."""

    class SlowServer(ReviewServer):
        async def create(self, resource, obj):
            await asyncio.sleep(0.02)
            return await super().create(resource, obj)

    async def status_of(token, client):
        headers = {"Authorization": f"Bearer {token}", "X-Forwarded-For": client}
        async with session.get("/api", headers=headers) as answer:
            return answer.status

    async def flood(lane):
        return [await status_of(f"bad-{lane}-{number}", "198.51.100.7") for number in range(40)]

    connector = aiohttp.TCPConnector(limit=0)
    async with login_session(SlowServer(), proxies=[ip_network("127.0.0.0/8")], connector=connector) as session:
        floods = [asyncio.create_task(flood(lane)) for lane in range(64)]
        await asyncio.sleep(0.2)
        assert [await status_of(f"token-viewer-{number}", f"203.0.113.{number}") for number in range(20)] == [200] * 20
        statuses = {status for statuses in await asyncio.gather(*floods) for status in statuses}
    assert statuses == {401, 429}


def account(name, token="b"):
    """Return the account of a token. The API server adds a name of each token to `extra`."""
    return Account(name, "", "1", ("people",), (("a", (token,)),))


MANY_NAMESPACES = frozenset(f"n{number}" for number in range(2_000))


async def test_concurrent_views_of_an_account_share_the_reviews_of_2000_namespaces():
    viewers = Login(server := ReviewServer())
    views = await asyncio.gather(*(viewers.viewer(account("n7"), MANY_NAMESPACES) for _ in range(5)))
    assert {view.namespaces for view in views} == {frozenset({"n7"})}
    # One review for pods of each namespace and of all namespaces, and one for claims of n7.
    assert server.reviews == len(MANY_NAMESPACES) + 2


async def test_accounts_do_not_push_out_the_rights_of_other_accounts(monkeypatch):
    """The account n0 has many tokens."""
    monkeypatch.setattr(login, "MAX_PERMISSIONS", 1_000)
    namespaces = frozenset(f"n{number}" for number in range(100))
    server = ReviewServer()
    viewers = Login(server)
    accounts = [account(f"n{number}") for number in range(1, 6)]
    for viewed in [*accounts, *(account("n0", f"token-{number}") for number in range(30))]:
        await viewers.viewer(viewed, namespaces)
    reviews = server.reviews
    assert len(viewers._permissions) == login.MAX_PERMISSIONS
    for viewed in accounts:
        assert (await viewers.viewer(viewed, namespaces)).namespaces == {viewed.name}
    assert server.reviews == reviews


async def test_a_removed_right_ends_after_a_minute_and_a_missing_right_is_reviewed_after_five_minutes():
    server, now = ReviewServer(), [0.0]
    viewers = Login(server, clock=lambda: now[0])

    async def view():
        """Return the number of reviews of a view, and its namespaces."""
        reviews = server.reviews
        namespaces = (await viewers.viewer(account("n7"), MANY_NAMESPACES)).namespaces
        return server.reviews - reviews, namespaces

    assert await view() == (len(MANY_NAMESPACES) + 2, {"n7"})
    now[0] = login.KEPT - 1
    assert await view() == (0, {"n7"})
    now[0] = login.KEPT
    assert await view() == (2, {"n7"})
    server.removed = "n7"
    now[0] = 2 * login.KEPT
    assert await view() == (1, set())
    server.removed = ""
    now[0] = 2 * login.KEPT + login.KEPT_MISSING
    assert await view() == (len(MANY_NAMESPACES) + 2, {"n7"})


async def test_a_view_without_an_answer_of_the_api_server_asks_nothing_more():
    server = ReviewServer()
    viewers = Login(server)
    await viewers.viewer(account("n7"), ())
    server.is_away = True
    with pytest.raises(StatusError):
        await viewers.viewer(account("n7"), MANY_NAMESPACES)
    failures = server.failures
    for _ in range(100):
        await asyncio.sleep(0)
    assert server.failures == failures


async def test_only_the_oldest_permissions_are_forgotten(monkeypatch):
    monkeypatch.setattr(login, "MAX_PERMISSIONS", 3)
    server = ReviewServer()
    viewers = Login(server)
    for namespace in "abcd":
        await viewers.may_see_events(account("mine"), namespace)
    for namespace in "dcb":
        await viewers.may_see_events(account("mine"), namespace)
    assert server.reviews == 4


def test_a_tenant_sees_no_object_without_metadata():
    reading = reading_of([*fleet(nodes=1), {"apiVersion": "v1", "kind": "ConfigMap"}], Features())
    assert all("metadata" in obj for obj in for_tenant(reading, {"mine"}).objects)


@pytest.mark.parametrize("user", ["half", "stranger"])
async def test_accounts_without_rights_on_pods_and_claims_see_no_pods(user):
    async with login_session() as session:
        assert json.loads(await read_as(user, session, "/api/v1/waiting"))["waiting"] == []


async def test_the_login_form_sets_a_cookie_that_scripts_cannot_read():
    """The cookie is sent to this site only."""
    async with login_session(cookie_jar=aiohttp.DummyCookieJar()) as session:
        async with session.post("/login", data={"token": "x"}, allow_redirects=False) as answer:
            assert (answer.status, "Set-Cookie" in answer.headers) == (401, False)
            assert "not valid" in await answer.text()
        async with session.post("/login", data={"token": "token-mine"}, allow_redirects=False) as answer:
            assert (answer.status, answer.headers["Location"]) == (303, "/")
            cookie = answer.headers["Set-Cookie"]
        for attribute in ("HttpOnly", "Secure", "SameSite=Strict", "Path=/"):
            assert attribute in cookie
        assert "Domain" not in cookie
        async with session.get("/", headers={"Cookie": cookie.partition(";")[0]}) as answer:
            page = Elements(await answer.text())
            assert "Logged in as mine" in page.text
        async with session.post("/logout", allow_redirects=False) as answer:
            assert "Max-Age=0" in answer.headers["Set-Cookie"]
        for charset in ("utf-8", "none"):
            headers = {"Content-Type": f"application/x-www-form-urlencoded; charset={charset}"}
            async with session.post("/login", data=b"token=\xff", headers=headers) as answer:
                assert answer.status == 400
        for origin, status in (("https://evil.example", 403), ("null", 403), (str(session._base_url).rstrip("/"), 401)):
            async with session.post("/login", data={"token": "x"}, headers={"Origin": origin}) as answer:
                assert answer.status == status


async def test_a_page_says_how_many_namespaces_it_does_not_show(monkeypatch):
    monkeypatch.setattr(login, "MAX_NAMESPACES", 1)
    async with login_session() as session:
        assert "Not shown: 1 namespace." in Elements(await read_as("mine", session, "/")).text
        assert "Not shown" not in Elements(await read_as("all", session, "/")).text
        monkeypatch.setattr(login, "MAX_NAMESPACES", 2)
        assert "Not shown" not in Elements(await read_as("mine", session, "/")).text


async def test_an_unreachable_api_server_lets_no_account_in():
    server = ReviewServer()
    async with login_session(server) as session:
        server.is_away = True
        await read_as("all", session, "/", 503)
        server.is_away = False
        await read_as("all", session, "/")


async def test_rights_are_reviewed_once_per_interval():
    server = ReviewServer()
    async with login_session(server) as session:
        for _ in range(3):
            await read_as("mine", session, "/")
        # One review of the token, and one for pods of all namespaces, pods of mine, claims of mine and pods of secret each.
        assert server.reviews == 1 + 1 + 2 + 1


async def test_rights_are_reviewed_only_for_namespaces_with_devices_and_for_the_namespace_of_the_pods_page():
    server = ReviewServer()
    pods = [pod("plain") for _ in range(20)]
    for number, plain in enumerate(pods):
        plain["metadata"]["namespace"] = f"n{number}"
    async with login_session(server, pods) as session:
        await read_as("n5", session, "/waiting")
        # One review of the token, and one for pods of all namespaces, pods of mine and pods of secret each.
        assert server.reviews == 1 + 1 + 1 + 1
        for namespace, status in (("n5", 200), ("n6", 404)):
            await read_as("n5", session, f"/pods/{namespace}/plain", status)


def test_a_tenant_view_hides_other_namespaces_and_keeps_device_states():
    reading = reading_of(two_tenants(), Features())
    tenant_view = for_tenant(reading, {"mine"})
    states = [[(device.device, device.state, len(device.holders)) for node in devices_of_nodes((), seen_reading) for device in node.devices] for seen_reading in (reading, tenant_view)]  # fmt: skip
    assert states[0] == states[1] == [(f"{DRIVER}/n0/gpu-{i}", "held", 1) for i in range(2)]
    visible = (tenant_view.pods, tenant_view.stock.claims, tenant_view.templates, tenant_view.quotas, tenant_view.objects, tenant_view.unread, tenant_view.raw)  # fmt: skip
    assert b"secret" not in encode(visible)
    assert for_tenant(reading, {"mine", "secret"}).pods == reading.pods


def test_a_tenant_view_has_the_configuration_in_force():
    in_force = ConfigurationInForce(configured(mode="observe"), "a.yaml")
    assert for_tenant(reading_of(two_tenants(), Features(), in_force=in_force), {"mine"}).in_force == in_force


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--listen", "0.0.0.0:0"], "so it needs --login and a certificate"),
        (["--listen", "0.0.0.0:0", "--login"], "so it needs --login and a certificate"),
        (["--listen", "0.0.0.0:0", "--tls-cert", "c", "--tls-key", "k"], "so it needs --login and a certificate"),
        (["--login", "--tls-cert", "c"], "belong together"),
        (["--login", "-f", "x"], "needs a cluster"),
    ],
)
def test_login_and_certificate_options_that_do_not_fit_are_refused(options, problem):
    result = run("dashboard", *options)
    assert (result.exit_code, problem in result.stderr) == (2, True)


async def test_a_renewed_certificate_is_served_to_new_connections(tmp_path):
    certificate_file, key_file = tmp_path / "tls.crt", tmp_path / "tls.key"

    def write(name):
        now, life = datetime.now(UTC), timedelta(days=9)
        pair = authority.leaf(authority.authority(name, now=now, life=life), ["localhost"], now=now, life=life)
        key_file.write_bytes(pair.key)
        certificate_file.write_bytes(pair.certificate)
        return ssl.PEM_cert_to_DER_cert(pair.certificate.decode().partition("-----END")[0] + "-----END CERTIFICATE-----\n")  # fmt: skip

    async def served_certificate(url):
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        host, port = url.removeprefix("https://").split(":")
        _, writer = await asyncio.open_connection(host, int(port), ssl=context)
        certificate_bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
        return certificate_bytes

    dashboard = Dashboard(source_of(*two_tenants()), login=Login(ReviewServer()))
    first = write("one")
    async with certificate(str(certificate_file), str(key_file), every=0.05) as tls, dashboard.open("127.0.0.1", 0, tls) as url:  # fmt: skip
        assert await served_certificate(url) == first
        certificate_file.write_text("torn")
        await asyncio.sleep(0.2)
        assert await served_certificate(url) == first
        second = write("two")

        async def serves_second():
            return await served_certificate(url) == second

        await until(serves_second)
