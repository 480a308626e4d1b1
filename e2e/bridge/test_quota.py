"""DeviceQuotas at the creation of pods and claims: two replicas of the allocator answer reviews, and the leader counts for both."""

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
from webhook.registration import Registration, quota_configuration

pytestmark = pytest.mark.real
CLASS = "quota-gpu"
LIMIT = 37
REPLICAS = ("allocator-0", "allocator-1")
LABEL = "quota-door"


@pytest.fixture(scope="module")
def certificates():
    """A certificate as mounted from the Secret `drawbridge-quota`."""
    now = dt.datetime.now(dt.UTC)
    issuer = authority.authority("quota", now=now, life=dt.timedelta(days=2))
    names = ("127.0.0.1", f"drawbridge-quota.{SYSTEM}.svc")
    leaf = authority.leaf(issuer, names, now=now, life=dt.timedelta(days=1))
    with tempfile.TemporaryDirectory() as folder:
        for name, content in (("tls.crt", leaf.certificate), ("tls.key", leaf.key), ("ca.crt", issuer.certificate)):
            Path(folder, name).write_bytes(content)
        yield folder


@pytest.fixture(scope="module")
def replicas(control_plane, bridge, certificates):
    """Two replicas. A label of a pod or claim selects the replica that reviews it, because no Service distributes the reviews here."""
    rights = [document.object for document in manifests.read([COMPONENT / "quota/rbac.yaml"])]
    control_plane.kubectl("apply", "--server-side", "-f", "-", input=manifests.dump(rights))
    bridge.processes[REPLICAS[0]].stop()
    ports = {name: free_port() for name in REPLICAS}
    options = {name: {"quota": f"127.0.0.1:{port}", "quota_certs": certificates} for name, port in ports.items()}
    bridge.start(REPLICAS[0], **options[REPLICAS[0]])
    ports_of_second = {name: f"127.0.0.1:{free_port()}" for name in ("api", "metrics_listen")}
    second_replica = bridge.spawn(
        REPLICAS[1], plugin=f"unix:{bridge.folder.name}/second/plugin.sock", **ports_of_second, **options[REPLICAS[1]]
    )
    registered = [configuration(name, port, certificates) for name, port in ports.items()]
    objects = [fleet.device_class(CLASS, "device.driver == 'quota.example.com'"), *registered]
    try:
        control_plane.create(*objects)
        yield REPLICAS
    finally:
        control_plane.remove(*objects)
        second_replica.stop()
        bridge.processes[REPLICAS[0]].stop()
        bridge.start(REPLICAS[0])
        control_plane.remove(*rights)


def configuration(name, port, certificates):
    """The generated webhook configuration with the address of one replica, for objects with the replica's label."""
    bundle = b64encode(Path(certificates, "ca.crt").read_bytes()).decode()
    result = quota_configuration(Registration(url=f"https://127.0.0.1:{port}", ca_bundle=bundle, failure_policy="Fail"))
    result["metadata"]["name"] = f"quota-{name}"
    for webhook in result["webhooks"]:
        # Three seconds are enough in a cluster; here a busy machine must not fail a test.
        webhook["timeoutSeconds"] = 20
        webhook["objectSelector"] = {"matchLabels": {LABEL: name}}
    return result


@pytest.fixture
def team(control_plane, replicas, namespace):
    """A namespace with a quota that both replicas know."""
    limit = {
        "apiVersion": "drawbridge.dev/v1alpha1",
        "kind": "DeviceQuota",
        "metadata": {"name": "team", "namespace": namespace},
        "spec": {"hard": {f"{CLASS}/devices": LIMIT}},
    }
    # Watches deliver templates in this order: a replica that knows the last template knows all.
    templates = [template(name, namespace, request("gpu", CLASS, count)) for name, count in (("two", 2), ("one", 1), ("much", LIMIT + 1))]  # fmt: skip
    control_plane.create(limit, *templates)
    too_much = claim("much", namespace, request("gpu", CLASS, LIMIT + 1)), pod("much", namespace, schedulerName="no-such-scheduler", resourceClaims=[using_template("much")])  # fmt: skip

    def refuse_too_much():
        claims = [labelled(claim, name) for claim in too_much for name in REPLICAS]
        return all("can be requested" in refusal(control_plane, claim, dryRun="All") for claim in claims)

    control_plane.until("both replicas refuse claims and pods that are too large", refuse_too_much, 60)
    yield namespace
    control_plane.delete(f"/api/v1/namespaces/{namespace}/pods", gracePeriodSeconds=0)


def labelled(item, name):
    return item | {"metadata": item["metadata"] | {"labels": {LABEL: name}}}


def unscheduled_pod(name, namespace, replica):
    """A pod of a scheduler that does not exist."""
    item = pod(name, namespace, schedulerName="no-such-scheduler", resourceClaims=[using_template("one")])
    return labelled(item, replica)


def refusal(control_plane, item, **query):
    """Try to create an object; return the refusal, or "" if it was accepted."""
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


def test_a_dry_run_reserves_nothing_and_plain_pods_pass_unreviewed(control_plane, bridge, team):
    leader = control_plane.get(LEASE)["spec"]["holderIdentity"]
    largest = labelled(claim("most", team, request("gpu", CLASS, LIMIT)), leader)
    for _ in range(3):
        assert refusal(control_plane, largest, dryRun="All") == ""
    assert refusal(control_plane, largest) == ""
    assert "at most 0 can be requested" in refusal(control_plane, unscheduled_pod("p", team, leader))
    assert refusal(control_plane, labelled(pod("plain", team, schedulerName="no-such-scheduler"), leader)) == ""


def test_a_refusal_names_core_resourcequotas_of_the_same_devices(control_plane, bridge, team, created):
    key = f"{CLASS}.deviceclass.resource.k8s.io/devices"
    meta = {"name": "core", "namespace": team}
    created({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": {"hard": {key: 100, "pods": 100}}})
    too_much = labelled(claim("much", team, request("gpu", CLASS, LIMIT + 1)), REPLICAS[0])
    words = f"ResourceQuotas count the same devices: core: {key} 0 of 100 used"
    control_plane.until(
        "the refusal names the ResourceQuota",
        lambda: refusal(control_plane, too_much, dryRun="All").endswith(words),
        60,
    )


SCOPES = ("Terminating", "NotTerminating", "BestEffort", "NotBestEffort", "PriorityClass", "CrossNamespacePodAffinity")
CLAIM_RESOURCES = (f"{CLASS}.deviceclass.resource.k8s.io/devices", f"requests.deviceclass.resource.kubernetes.io/{CLASS}", "count/resourceclaims.resource.k8s.io")  # fmt: skip


def test_a_resourcequota_with_scopes_counts_no_claim(control_plane, bridge, team, created):
    """ResourceQuotas with scopes allow no claim, and one without a scope does. The API server counts a claim in the latter only."""
    kind = {"apiVersion": "v1", "kind": "ResourceQuota"}
    no_room = dict.fromkeys(CLAIM_RESOURCES, 0)
    exists = [{"scopeName": "PriorityClass", "operator": "DoesNotExist"}]
    specs = {scope.lower(): {"hard": no_room, "scopes": [scope]} for scope in SCOPES}
    specs |= {"selector": {"hard": no_room, "scopeSelector": {"matchExpressions": exists}}}
    specs |= {"plain": {"hard": dict.fromkeys(CLAIM_RESOURCES, 100)}}
    created(*(kind | {"metadata": {"name": name, "namespace": team}, "spec": spec} for name, spec in specs.items()))
    small_claim = labelled(claim("little", team, request("gpu", CLASS, 2)), REPLICAS[0])

    def used():
        quotas = control_plane.get(f"/api/v1/namespaces/{team}/resourcequotas")["items"]
        return {
            quota["metadata"]["name"]: tuple(quota["status"].get("used", {}).get(key) for key in CLAIM_RESOURCES)
            for quota in quotas
        }

    expected_use, no_use = ("2", "2", "1"), ("0", "0", "0")

    def is_counted():
        """Return whether the claim is counted; create it again if the API server did not know the quota at its creation."""
        plain_use = used()["plain"]
        if plain_use == no_use:
            control_plane.remove(small_claim)
            created(small_claim)
        return plain_use == expected_use

    control_plane.until("the API server has counted the claim", is_counted, 60)
    assert {name for name, amounts in used().items() if set(amounts) - {None, "0"}} == {"plain"}
    too_much = labelled(claim("much", team, request("gpu", CLASS, LIMIT)), REPLICAS[0])
    amounts = dict(zip(CLAIM_RESOURCES, expected_use, strict=True))
    expected = {f"plain: {key} {amount} of 100 used" for key, amount in amounts.items()}

    def named_quotas():
        _, _, quotas_named = refusal(control_plane, too_much, dryRun="All").partition(
            "ResourceQuotas count the same devices: "
        )
        return set(quotas_named.split(", "))

    control_plane.until("the refusal names the ResourceQuota without a scope", lambda: named_quotas() == expected, 60)


@pytest.mark.timeout(240)
def test_a_pod_with_an_implicit_resource_name_counts_from_creation(control_plane, team):
    name = f"deviceclass.resource.kubernetes.io/{CLASS}"

    def requesting(pod_name, count):
        item = pod(pod_name, team, container(**limits(**{name: count})), schedulerName="no-such-scheduler")
        return labelled(item, REPLICAS[0])

    control_plane.create(requesting("all", LIMIT))
    assert f"1 requested, {LIMIT} of {LIMIT} used" in refusal(control_plane, requesting("more", 1))


def test_pods_created_before_their_template_stay_within_the_quota(control_plane, bridge, team):
    """When the pods are created, their requests are unknown. The webhook reviews the claims that kube-controller-manager creates later."""
    each = LIMIT // 3
    entries = [using_template("late")]
    for index in range(6):
        early = pod(f"early{index}", team, schedulerName="no-such-scheduler", resourceClaims=entries)
        assert refusal(control_plane, labelled(early, REPLICAS[index % 2])) == ""
    late = template("late", team, request("gpu", CLASS, each))
    late["spec"]["metadata"] = {"labels": {LABEL: REPLICAS[0]}}
    control_plane.create(late)

    def refused():
        events = control_plane.get(f"/api/v1/namespaces/{team}/events")["items"]
        words = f"{each} requested, {3 * each} of {LIMIT} used"
        return {event["involvedObject"]["name"] for event in events if words in event["message"]}

    control_plane.until("three pods have events that say why they get no claim", lambda: len(refused()) == 3, 60)
    assert len(claims_of(control_plane, team)) == 3


def test_parallel_creates_through_two_replicas_never_exceed_the_quota(control_plane, bridge, team):
    """This holds after one replica has crashed, too."""
    items = [unscheduled_pod(f"p{at}", team, REPLICAS[at % 2]) for at in range(200)]
    with ThreadPoolExecutor(32) as executor:
        refusals = list(executor.map(lambda item: refusal(control_plane, item), items))
    assert refusals.count("") == LIMIT, Counter(refusals).most_common(3)
    words = f"quota {team}/team: {CLASS}/devices: 1 requested, {LIMIT} of {LIMIT} used"
    assert all(words in message for message in refusals if message)
    stored = pods_of(control_plane, team)
    assert len(stored) == LIMIT
    control_plane.until("each pod has a claim", lambda: len(claims_of(control_plane, team)) == LIMIT, 60)
    for name in REPLICAS:  # each pod counts once, although its review, the stored pod and its claim are known
        assert words in refusal(control_plane, unscheduled_pod("more", team, name), dryRun="All")

    bridge.processes[REPLICAS[0]].stop(hard=True)
    control_plane.until("the other replica leads", lambda: control_plane.get(LEASE)["spec"]["holderIdentity"] == REPLICAS[1], 60)  # fmt: skip
    control_plane.until(
        "the other replica reviews pods",
        lambda: words in refusal(control_plane, unscheduled_pod("more", team, REPLICAS[1])),
        60,
    )
    control_plane.delete(f"/api/v1/namespaces/{team}/pods/{stored[0]['metadata']['name']}", gracePeriodSeconds=0)
    control_plane.until("one more pod is accepted", lambda: not refusal(control_plane, unscheduled_pod("next", team, REPLICAS[1])), 60)  # fmt: skip
    assert words in refusal(control_plane, unscheduled_pod("more", team, REPLICAS[1]))
    assert len(pods_of(control_plane, team)) == LIMIT


def test_quota_examples_of_the_page_match_the_output_of_kubectl(
    control_plane, replicas, namespace, monkeypatch, tmp_path
):
    """The manifests are those of the page, with the label that selects the leading replica."""
    leader = control_plane.get(LEASE)["spec"]["holderIdentity"]
    folder = "manifests/examples/policy"
    Path(tmp_path, folder).mkdir(parents=True)
    for name in ("quota.yaml", "within.yaml", "beyond.yaml"):
        [document] = manifests.read([ROOT / folder / name])
        Path(tmp_path, folder, name).write_text(manifests.dump([labelled(document.object, leader)]), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    follow(control_plane, namespace, "Quotas")
