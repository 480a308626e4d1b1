"""Quotas at creation, on a real API server: two replicas of the allocator answer its reviews, and one of them counts."""

import datetime as dt
import tempfile
from base64 import b64encode
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from certs import authority
from cluster import manifests
from e2e.actors import fleet
from e2e.actors.bridge import COMPONENT, LEASE
from e2e.actors.client import ApiError
from e2e.actors.page import ROOT, follow
from e2e.actors.webhook import SYSTEM
from e2e.actors.workloads import claim, container, limits, pod, request, template, using_template
from e2e.ground.controlplane import free_port
from webhook.registration import Registration, at_quotas

pytestmark = pytest.mark.real
CLASS = "quota-gpu"
LINE = 37
DOORS = ("allocator-0", "allocator-1")
LABEL = "quota-door"


@pytest.fixture(scope="module")
def shown():
    """A certificate as the Secret `drawbridge-quota` is mounted."""
    now = dt.datetime.now(dt.UTC)
    issuer = authority.authority("quota", now=now, life=dt.timedelta(days=2))
    names = ("127.0.0.1", f"drawbridge-quota.{SYSTEM}.svc")
    leaf = authority.leaf(issuer, names, now=now, life=dt.timedelta(days=1))
    with tempfile.TemporaryDirectory() as folder:
        for name, content in (("tls.crt", leaf.certificate), ("tls.key", leaf.key), ("ca.crt", issuer.certificate)):
            Path(folder, name).write_bytes(content)
        yield folder


@pytest.fixture(scope="module")
def doors(control_plane, bridge, shown):
    """Two replicas, each asked about the pods and claims that have its name as a label, as a Service would spread them."""
    rights = [one.object for one in manifests.read([COMPONENT / "quota/rbac.yaml"])]
    control_plane.kubectl("apply", "--server-side", "-f", "-", input=manifests.dump(rights))
    bridge.processes[DOORS[0]].stop()
    ports = {name: free_port() for name in DOORS}
    asked = {name: {"quota": f"127.0.0.1:{port}", "quota_certs": shown} for name, port in ports.items()}
    bridge.start(DOORS[0], **asked[DOORS[0]])
    second = {name: f"127.0.0.1:{free_port()}" for name in ("extender", "api", "metrics_listen")}
    other = bridge.spawn(DOORS[1], plugin=f"unix:{bridge.folder.name}/second/plugin.sock", **second, **asked[DOORS[1]])
    registered = [configuration(name, port, shown) for name, port in ports.items()]
    made = [fleet.device_class(CLASS, "device.driver == 'quota.example.com'"), *registered]
    try:
        control_plane.create(*made)
        yield DOORS
    finally:
        control_plane.remove(*made)
        other.stop()
        bridge.processes[DOORS[0]].stop()
        bridge.start(DOORS[0])
        control_plane.remove(*rights)


def configuration(name, port, shown):
    """What is generated, for one replica at an address, and for what has its label."""
    bundle = b64encode(Path(shown, "ca.crt").read_bytes()).decode()
    made = at_quotas(Registration(url=f"https://127.0.0.1:{port}", ca_bundle=bundle, failure_policy="Fail"))
    made["metadata"]["name"] = f"quota-{name}"
    for webhook in made["webhooks"]:
        # Three seconds are enough in a cluster; here no test is to fail because the machine is busy with ten other things.
        webhook["timeoutSeconds"] = 20
        webhook["objectSelector"] = {"matchLabels": {LABEL: name}}
    return made


@pytest.fixture
def team(control_plane, doors, namespace):
    """A namespace with a line, which both replicas know of."""
    limit = {
        "apiVersion": "drawbridge.dev/v1alpha1",
        "kind": "DeviceQuota",
        "metadata": {"name": "team", "namespace": namespace},
        "spec": {"hard": {f"{CLASS}/devices": LINE}},
    }
    # Templates are heard of in this order: a process that knows the last knows all.
    templates = [template(name, namespace, request("gpu", CLASS, many)) for name, many in (("two", 2), ("one", 1), ("much", LINE + 1))]  # fmt: skip
    control_plane.create(limit, *templates)
    much = claim("much", namespace, request("gpu", CLASS, LINE + 1)), pod("much", namespace, schedulerName="no-such-scheduler", resourceClaims=[using_template("much")])  # fmt: skip

    def known():
        asked = [labelled(one, name) for one in much for name in DOORS]
        return all("the most that would pass" in refusal(control_plane, one, dryRun="All") for one in asked)

    control_plane.until("both replicas turn back what is too much", known, 60)
    yield namespace
    control_plane.delete(f"/api/v1/namespaces/{namespace}/pods", gracePeriodSeconds=0)


def labelled(item, name):
    return item | {"metadata": item["metadata"] | {"labels": {LABEL: name}}}


def waiting(name, namespace, door):
    """A pod of a scheduler that is not there."""
    item = pod(name, namespace, schedulerName="no-such-scheduler", resourceClaims=[using_template("one")])
    return labelled(item, door)


def refusal(control_plane, item, **query):
    """Try to create something; answers with why not, "" if it was let in."""
    path = control_plane.path_of(item).rpartition("/")[0]
    try:
        control_plane.post(path, item, **query)
    except ApiError as error:
        return error.message
    return ""


def pods_of(control_plane, namespace):
    return control_plane.get(f"/api/v1/namespaces/{namespace}/pods")["items"]


def claims_of(control_plane, namespace):
    return control_plane.get(f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims")["items"]


def test_a_dry_run_leaves_nothing_and_what_has_no_claims_never_comes_to_the_door(control_plane, bridge, team):
    leader = control_plane.get(LEASE)["spec"]["holderIdentity"]
    most = labelled(claim("most", team, request("gpu", CLASS, LINE)), leader)
    for _ in range(3):
        assert refusal(control_plane, most, dryRun="All") == ""
    assert refusal(control_plane, most) == ""
    assert "the most that would pass is 0" in refusal(control_plane, waiting("p", team, leader))
    assert refusal(control_plane, labelled(pod("plain", team, schedulerName="no-such-scheduler"), leader)) == ""


def test_a_refusal_names_the_core_resourcequotas_that_count_the_same_devices(control_plane, bridge, team, created):
    key = f"{CLASS}.deviceclass.resource.k8s.io/devices"
    meta = {"name": "core", "namespace": team}
    created({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": {"hard": {key: 100, "pods": 100}}})
    much = labelled(claim("much", team, request("gpu", CLASS, LINE + 1)), DOORS[0])
    words = f"ResourceQuota also counts: core: {key} 0 of 100 used"
    control_plane.until("it is told", lambda: refusal(control_plane, much, dryRun="All").endswith(words), 60)


SCOPES = ("Terminating", "NotTerminating", "BestEffort", "NotBestEffort", "PriorityClass", "CrossNamespacePodAffinity")
OF_CLAIMS = (f"{CLASS}.deviceclass.resource.k8s.io/devices", f"requests.deviceclass.resource.kubernetes.io/{CLASS}", "count/resourceclaims.resource.k8s.io")  # fmt: skip


def test_core_counts_no_claim_under_a_scope_whatever_the_scope_and_so_no_such_line_is_named(control_plane, bridge, team, created):  # fmt: skip
    """Quotas with scopes that have room for nothing, and one without: the server lets a claim in, and counts it in that one alone."""
    kind = {"apiVersion": "v1", "kind": "ResourceQuota"}
    nothing = dict.fromkeys(OF_CLAIMS, 0)
    exists = [{"scopeName": "PriorityClass", "operator": "DoesNotExist"}]
    specs = {scope.lower(): {"hard": nothing, "scopes": [scope]} for scope in SCOPES}
    specs |= {"selector": {"hard": nothing, "scopeSelector": {"matchExpressions": exists}}}
    specs |= {"plain": {"hard": dict.fromkeys(OF_CLAIMS, 100)}}
    created(*(kind | {"metadata": {"name": name, "namespace": team}, "spec": spec} for name, spec in specs.items()))
    little = labelled(claim("little", team, request("gpu", CLASS, 2)), DOORS[0])

    def used():
        found = control_plane.get(f"/api/v1/namespaces/{team}/resourcequotas")["items"]
        return {
            one["metadata"]["name"]: tuple(one["status"].get("used", {}).get(key) for key in OF_CLAIMS) for one in found
        }

    counted, nothing_yet = ("2", "2", "1"), ("0", "0", "0")

    def counts():
        """A claim that comes before the server knows a quota is counted minutes later: then it comes once more."""
        now = used()["plain"]
        if now == nothing_yet:
            control_plane.remove(little)
            created(little)
        return now == counted

    control_plane.until("core has counted", counts, 60)
    assert {name for name, amounts in used().items() if set(amounts) - {None, "0"}} == {"plain"}
    much = labelled(claim("much", team, request("gpu", CLASS, LINE)), DOORS[0])
    amounts = dict(zip(OF_CLAIMS, counted, strict=True))
    told = {f"plain: {key} {amount} of 100 used" for key, amount in amounts.items()}

    def lines():
        _, _, said = refusal(control_plane, much, dryRun="All").partition("ResourceQuota also counts: ")
        return set(said.split(", "))

    control_plane.until("it is told", lambda: lines() == told, 60)


@pytest.mark.time_limit(240, "a lease runs out in it")
def test_a_pod_that_core_serves_by_name_counts_from_its_creation(control_plane, team):
    name = f"deviceclass.resource.kubernetes.io/{CLASS}"

    def asking(called, count):
        item = pod(called, team, container(**limits(**{name: count})), schedulerName="no-such-scheduler")
        return labelled(item, DOORS[0])

    control_plane.create(asking("all", LINE))
    assert f"1 asked for, {LINE} of {LINE} used" in refusal(control_plane, asking("more", 1))


def test_pods_that_came_before_their_template_get_no_more_claims_than_the_quota_allows(control_plane, bridge, team):
    """Nobody knows what the pods will ask for when they are created; kube-controller-manager's claims are reviewed."""
    each = LINE // 3
    entries = [using_template("late")]
    for at in range(6):
        early = pod(f"early{at}", team, schedulerName="no-such-scheduler", resourceClaims=entries)
        assert refusal(control_plane, labelled(early, DOORS[at % 2])) == ""
    late = template("late", team, request("gpu", CLASS, each))
    late["spec"]["metadata"] = {"labels": {LABEL: DOORS[0]}}
    control_plane.create(late)

    def refused():
        events = control_plane.get(f"/api/v1/namespaces/{team}/events")["items"]
        words = f"{each} asked for, {3 * each} of {LINE} used"
        return {event["involvedObject"]["name"] for event in events if words in event["message"]}

    control_plane.until("three pods are told why they get no claim", lambda: len(refused()) == 3, 60)
    assert len(claims_of(control_plane, team)) == 3


def test_two_hundred_creates_at_once_through_two_replicas_never_overshoot_and_neither_do_those_after_a_crash(control_plane, bridge, team):  # fmt: skip
    items = [waiting(f"p{at}", team, DOORS[at % 2]) for at in range(200)]
    with ThreadPoolExecutor(32) as several:
        said = list(several.map(lambda item: refusal(control_plane, item), items))
    assert said.count("") == LINE, Counter(said).most_common(3)
    words = f"quota {team}/team: {CLASS}/devices: 1 asked for, {LINE} of {LINE} used"
    assert all(words in why and "the most that would pass is 0" in why for why in said if why)
    stored = pods_of(control_plane, team)
    assert len(stored) == LINE
    control_plane.until("a claim is made for each", lambda: len(claims_of(control_plane, team)) == LINE, 60)
    for name in DOORS:  # each counts once: as a pod at its creation, as one that is stored, and as its claim
        assert words in refusal(control_plane, waiting("more", team, name), dryRun="All")

    bridge.processes[DOORS[0]].stop(hard=True)
    control_plane.until("the other replica leads", lambda: control_plane.get(LEASE)["spec"]["holderIdentity"] == DOORS[1], 60)  # fmt: skip
    control_plane.until("it answers", lambda: words in refusal(control_plane, waiting("more", team, DOORS[1])), 60)
    control_plane.delete(f"/api/v1/namespaces/{team}/pods/{stored[0]['metadata']['name']}", gracePeriodSeconds=0)
    control_plane.until("one may come in its place", lambda: not refusal(control_plane, waiting("next", team, DOORS[1])), 60)  # fmt: skip
    assert words in refusal(control_plane, waiting("more", team, DOORS[1]))
    assert len(pods_of(control_plane, team)) == LINE


def test_quota_examples_of_the_page_match_the_output_of_kubectl(control_plane, doors, namespace, monkeypatch, tmp_path):
    """The page's own manifests, with the label that sends them to the replica that leads."""
    leader = control_plane.get(LEASE)["spec"]["holderIdentity"]
    folder = "manifests/examples/policy"
    Path(tmp_path, folder).mkdir(parents=True)
    for name in ("quota.yaml", "within.yaml", "beyond.yaml"):
        [one] = manifests.read([ROOT / folder / name])
        Path(tmp_path, folder, name).write_text(manifests.dump([labelled(one.object, leader)]), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    follow(control_plane, namespace, "Quotas")
