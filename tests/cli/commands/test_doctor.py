"""`drawbridge doctor`: each ill is found with a remedy, a repaired one is not found again, and nothing newer is undone."""

from datetime import UTC, datetime, timedelta

import pytest
import yaml

from analysis.configuration import ConfigurationInForce, given_configuration
from analysis.doctor import diagnose, survey, write_repair
from cli.contract import CommandFailed
from cluster import resources
from cluster.errors import Forbidden, NotFound
from cluster.kubernetes import Kubernetes
from cluster.patch import Merge
from tests.allocator.service.sidecar import DRIVER, claim, device_class, gpus, loaded, node, pod
from tests.cli.running import manifest, run, run_json
from tests.cli.test_doctor_components import installation, of
from tests.objects import resource_quota
from webhook.claims import taint_rule, template
from webhook.state import read

FINALIZER = "resource.kubernetes.io/delete-protection"
NVIDIA = "gpu.nvidia.com"
BRIDGE = {"schedulerName": "drawbridge", "drivers": [DRIVER], "fence": True}
CONFIGURATION = {"apiVersion": "drawbridge.dev/v1alpha1", "kind": "DrawbridgeConfiguration", "bridge": BRIDGE}
FENCING = ConfigurationInForce(read(CONFIGURATION)[0], "a file")
DEFAULTS = {"source": "defaults", "mode": "enforce"}
FLEET = [device_class(), node("n0"), gpus("n0", 2)]
OF_NVIDIA = [device_class(NVIDIA), *FLEET[1:]]


def held(name, *pods, device="gpu-0"):
    """A claim that is allocated, and reserved for pods."""
    result = {"request": "r", "driver": DRIVER, "pool": "n0", "device": device}
    consumers = [{"resource": "pods", "name": consumer, "uid": f"pod-{consumer}"} for consumer in pods]
    obj = claim(name) | {"status": {"allocation": {"devices": {"results": [result]}}, "reservedFor": consumers}}
    obj["metadata"]["finalizers"] = [FINALIZER]
    return obj


def made_for(name, owner):
    obj = claim(name)
    reference = {"apiVersion": "v1", "kind": "Pod", "name": owner, "uid": f"pod-{owner}", "controller": True}
    obj["metadata"]["ownerReferences"] = [reference]
    return obj


def protected(name):
    obj = claim(name)
    obj["metadata"]["finalizers"] = [FINALIZER]
    return obj


def protected_for(name, owner):
    """A claim as kube-controller-manager makes it where manifests/protected-claims is."""
    obj = made_for(name, owner)
    obj["metadata"]["finalizers"] = [FINALIZER]
    return obj


def lone(name, minutes=60, **more):
    """A claim that hangs on nothing, made so many minutes ago."""
    obj = claim(name)
    born = (datetime.now(UTC) - timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")
    obj["metadata"] |= {"creationTimestamp": born} | more
    return obj


def lease(age):
    renewed = (datetime.now(UTC) - timedelta(seconds=age)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": "allocator-0", "leaseDurationSeconds": 15, "renewTime": renewed}
    meta = {"name": "drawbridge-allocator", "namespace": "drawbridge-system"}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec}


def unused():
    """A ResourceClaimTemplate of the webhook that no pod uses any more."""
    spec = {"spec": claim("any")["spec"]}
    obj = template.object_of(template.name_of(spec), spec, "default")
    obj["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    return obj


def once_only(minutes, driver="hami-core-gpu.project-hami.io", status="False"):
    """A pod that is bound to a node without a sandbox, and its allocated claim."""
    since = (datetime.now(UTC) - timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")
    waiting, holding = pod("p", "a"), held("a", "p")
    waiting["spec"]["nodeName"] = "n0"
    waiting["status"] = {
        "conditions": [{"type": "PodReadyToStartContainers", "status": status, "lastTransitionTime": since}]
    }
    holding["status"]["allocation"]["devices"]["results"][0]["driver"] = driver
    published = gpus("n0", 2)
    published["metadata"]["name"] = "of-the-driver"
    published["spec"]["driver"] = driver
    return [published, holding, waiting]


def audit_event(reason, message, age=60, kind="Node"):
    """An Event that an audit agent wrote some seconds ago."""
    stamp = (datetime.now(UTC) - timedelta(seconds=age)).strftime("%Y-%m-%dT%H:%M:%SZ")
    meta = {"name": f"{reason}-{age}-{kind}".lower(), "namespace": "default"}
    fields = {
        "reason": reason,
        "message": message,
        "lastTimestamp": stamp,
        "reportingComponent": "drawbridge-node-agent",
    }
    return {"apiVersion": "v1", "kind": "Event", "metadata": meta, "involvedObject": {"kind": kind, "name": "n0"}, **fields}  # fmt: skip


def waiting(*claims, **more):
    """A pod that no scheduler has found a node for."""
    obj = pod("p", *claims, **more)
    obj["status"] = {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}
    return obj


def either(name):
    """A claim for a device behind the fence, or else one of another class."""
    obj = claim(name)
    ways = [{"name": way, "deviceClassName": class_name} for way, class_name in (("x", "gpu"), ("y", "free"))]
    obj["spec"]["devices"]["requests"] = [{"name": "r", "firstAvailable": ways}]
    return obj


def let_in(name, key="drawbridge.dev/fence"):
    """A claim that tolerates a taint."""
    obj = claim(name)
    [request] = obj["spec"]["devices"]["requests"]
    request["exactly"]["tolerations"] = [{"key": key, "operator": "Exists", "effect": "NoSchedule"}]
    return obj


def mark(age):
    seen = (datetime.now(UTC) - timedelta(seconds=age)).isoformat(timespec="seconds")
    node_of = {"apiVersion": "v1", "kind": "Node", "name": "n0", "uid": "u"}
    meta = {"name": "drawbridge-held-x", "labels": {"drawbridge.dev/marked-on": "n"}, "annotations": {"drawbridge.dev/seen": seen}, "ownerReferences": [node_of]}  # fmt: skip
    spec = {"deviceSelector": {"driver": DRIVER, "pool": "n0", "device": "gpu-0"}, "taint": {"key": "drawbridge.dev/device-plugin", "effect": "NoSchedule"}}  # fmt: skip
    return {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule", "metadata": meta, "spec": spec}


def wearing(age, name="n0", **condition):
    """A node with a condition that an audit agent wrote some seconds ago."""
    stood = (datetime.now(UTC) - timedelta(seconds=age)).strftime("%Y-%m-%dT%H:%M:%SZ")
    node_condition = {"type": "DrawbridgeDevicesConsistent", "status": "False", "lastHeartbeatTime": stood} | condition
    return node(name, conditions=[{"type": "Ready", "status": "True"}, node_condition])


# What is wrong: the objects, what is found about which of them, and what would be done.
ILLS = {
    "O209": ([held("a", "p"), held("b", "q"), pod("p", "a"), pod("q", "b")], "ResourceClaim/default/a", "deallocate default/b, whose pods are on no node yet, so that they are placed again"),
    "O210": ([held("a", "gone"), pod("p")], "ResourceClaim/default/a", "remove its allocation and its reservations"),
    "O211": ([made_for("a", "gone"), pod("p")], "ResourceClaim/default/a", "delete it"),
    "O212": ([protected("a"), pod("p")], "ResourceClaim/default/a", "remove its finalizer"),
    "O113": (once_only(minutes=6), "Pod/default/p", ""),
    "O110": ([taint_rule(DRIVER), claim("a"), waiting("a")], "Pod/default/p", ""),
    "O108": ([device_class("hollow", selectors=[{"cel": {"expression": "false"}}]), claim("a", class_name="hollow"), pod("p", "a")], "DeviceClass/hollow", ""),
    "O204": ([gpus("gone", 2), pod("p")], "ResourceSlice/gone-gpus", ""),
    "O107": ([claim("a", class_name="none"), pod("p", "a")], "DeviceClass/none", ""),
    "O218": ([held("a", "p", device="gpu-99"), pod("p", "a")], "ResourceClaim/default/a", ""),
    "O221": ([audit_event("DeviceGivenTwice", "device x: two have it"), pod("p")], "Node/n0", ""),
    "O213": ([mark(3600), pod("p")], "DeviceTaintRule/drawbridge-held-x", "delete it"),
    "O214": ([wearing(3600, "n9"), pod("p")], "Node/n9", "remove it from the node"),
    "O017": ([lease(120), pod("p")], "Lease/drawbridge-system/drawbridge-allocator", ""),
    "O217": ([lone("a"), lone("b", minutes=30), lone("new", minutes=1), pod("p")], "ResourceClaim/default/a", ""),
    "O216": ([unused(), pod("p")], f"ResourceClaimTemplate/default/{unused()['metadata']['name']}", "delete it"),
}  # fmt: skip


def well():
    """Nothing is wrong with these, now."""
    return [
        held("a", "p"),
        pod("p", "a"),
        claim("b"),
        made_for("c", "p"),
        protected("d"),
        protected_for("e", "q"),
        pod("q", "d"),
        lease(5),
        mark(60),
        wearing(60, "n8"),
        *of_agents(),
    ]


def of_agents():
    """What agents say besides findings: what is over, what is old, what pods are told, and what they may say one day."""
    return [
        audit_event("DeviceGivenTwice", "it is over"),
        audit_event("DeviceNotAllocated", "long ago", age=7200),
        audit_event("DeviceGivenTwice", "two have it", kind="Pod"),
        audit_event("SomethingElse", "else"),
    ]


@pytest.mark.parametrize("what", ILLS)
def test_each_ill_is_found_in_a_dump_with_a_remedy(what, tmp_path):
    objects, name, repair = ILLS[what]
    code, answer = run_json("doctor", "-f", manifest(tmp_path / "dump.yaml", *FLEET, *objects))
    assert code == 1
    [finding] = answer["findings"]
    assert (finding["code"], finding["object"], finding["repair"]) == (what, name, repair)
    assert finding["remedy"]
    assert not finding["repaired"]


@pytest.mark.parametrize("what", ["O110", "O113"])
def test_a_pod_and_its_claim_that_name_no_namespace_are_both_in_default(what, tmp_path):
    objects, name, _ = ILLS[what]
    bare = []
    for obj in objects:
        metadata = {key: value for key, value in obj["metadata"].items() if key != "namespace"}
        bare.append({**obj, "metadata": metadata})
    _, answer = run_json("doctor", "-f", manifest(tmp_path / "dump.yaml", *FLEET, *bare))
    assert [(finding["code"], finding["object"]) for finding in answer["findings"]] == [(what, name)]


def test_a_claim_that_is_to_go_and_has_its_finalizer_from_the_beginning_is_found_although_its_pod_is_there(tmp_path):
    going = protected_for("a", "p")
    going["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0}
    _, answer = run_json("doctor", "-f", manifest(tmp_path / "dump.yaml", *FLEET, going, pod("p")))
    assert [(finding["code"], finding["object"]) for finding in answer["findings"]] == [
        ("O212", "ResourceClaim/default/a")
    ]


@pytest.mark.parametrize(
    "worn", [{"lastHeartbeatTime": None}, {"lastHeartbeatTime": "yesterday"}, {"lastHeartbeatTime": 7}]
)
def test_a_condition_without_a_valid_heartbeat_time_is_idle(worn, tmp_path):
    _, answer = run_json("doctor", "-f", manifest(tmp_path / "dump.yaml", *FLEET, wearing(60, "n9", **worn), pod("p")))
    assert [(finding["code"], finding["object"]) for finding in answer["findings"]] == [("O214", "Node/n9")]


async def test_an_idle_condition_goes_and_no_other_does_and_one_that_is_said_anew_stays():
    cluster = loaded(*FLEET, wearing(3600, "n9"), pod("p"))
    [ill] = diagnose(await survey(cluster, datetime.now(UTC))).items()
    fresh = wearing(0, "n9")["status"]
    await cluster.patch(resources.NODES, "n9", Merge({"status": fresh}), subresource="status")
    assert await write_repair(cluster, ill[1]) == "it has changed: run doctor again"
    assert diagnose(await survey(cluster, datetime.now(UTC))) == {}
    old = wearing(3600, "n9")["status"]
    await cluster.patch(resources.NODES, "n9", Merge({"status": old}), subresource="status")
    [ill] = diagnose(await survey(cluster, datetime.now(UTC))).items()
    assert await write_repair(cluster, ill[1]) == ""
    left = await cluster.get(resources.NODES.raw, "n9")
    assert [condition["type"] for condition in left["status"]["conditions"]] == ["Ready"]
    assert await write_repair(cluster, ill[1]) == "it has changed: run doctor again"


async def test_names_that_the_webhook_configuration_does_not_send_are_told(tmp_path):
    plain = {key: CONFIGURATION[key] for key in ("apiVersion", "kind")}
    table = {"name": "ours", "title": "Ours", "keys": [{"name": "our.org/gpu", "meaning": "GPUs", "role": "count"}]}
    config = manifest(tmp_path / "configuration.yaml", plain | {"dialects": [table]})
    registered = [yaml.safe_load(run("manifests", "--only", "webhooks", *of).stdout.partition("---")[0]) for of in ([], ["--config", config])]  # fmt: skip
    assert {obj["kind"] for obj in registered} == {"MutatingWebhookConfiguration"}
    old, new = (
        manifest(tmp_path / f"{i}.yaml", *FLEET, pod("p"), configuration) for i, configuration in enumerate(registered)
    )
    _, answer = run_json("doctor", "-f", old, "--config", config)
    [finding] = [ill for ill in answer["findings"] if ill["code"] == "O016"]
    assert "names of our.org do not reach the webhook" in finding["message"]
    assert "manifests --only webhooks" in finding["remedy"]
    for file, options in ((new, ("--config", config)), (old, ())):
        _, answer = run_json("doctor", "-f", file, *options)
        assert {finding["code"] for finding in answer["findings"]} == {"O008"}  # the authority has put no bundle in
    for configuration, unsent in zip(registered, [("our.org",), ()], strict=True):
        seen = await survey(loaded(*FLEET, configuration), datetime.now(UTC), given_configuration(str(config)))
        messages = [finding.message for finding in diagnose(seen) if finding.code == "O016"]
        assert [
            f"names of {name} do not reach the webhook" in message
            for name, message in zip(unsent, messages, strict=True)
        ] == [True] * len(unsent)


def test_a_fence_that_the_configuration_wants_is_missed_and_found_when_it_is_there(tmp_path):
    config = manifest(tmp_path / "configuration.yaml", CONFIGURATION)
    dump = manifest(tmp_path / "dump.yaml", *FLEET, pod("p"))
    code, answer = run_json("doctor", "-f", dump, "--config", config)
    assert (code, [finding["code"] for finding in answer["findings"]]) == (1, ["O206"])
    fenced = manifest(tmp_path / "fenced.yaml", *FLEET, pod("p"), taint_rule(DRIVER))
    code, answer = run_json("doctor", "-f", fenced, "--config", config)
    assert (code, answer["findings"]) == (0, [])
    assert answer["configuration"] == {"source": str(config), "mode": "enforce"}


def schedulers_told(tmp_path, *objects, bridge=None):
    """What is found of two schedulers, with a configuration if one is given."""
    config = manifest(tmp_path / "configuration.yaml", CONFIGURATION | {"bridge": bridge}) if bridge else ""
    dump = manifest(tmp_path / "dump.yaml", *FLEET, *objects)
    options = ("--config", config) if bridge else ()
    _, answer = run_json("doctor", "-f", dump, *options)
    return [finding["message"].partition(" may ")[0] for finding in answer["findings"] if finding["code"] == "O205"]


def test_two_schedulers_on_one_driver_are_told_of_unless_a_fence_keeps_them_apart(tmp_path):
    """Each holds a device; or one holds and the other only waits."""
    ours, theirs = pod("p", "a", nodeName="n0"), pod("q", "b", nodeName="n0", schedulerName="default-scheduler")
    both = [held("a", "p"), held("b", "q", device="gpu-1"), ours, theirs]
    pair = ["drawbridge and default-scheduler"]
    assert schedulers_told(tmp_path, *both) == pair
    assert schedulers_told(tmp_path, held("a", "p"), claim("b"), ours, theirs) == pair
    assert schedulers_told(tmp_path, *both, taint_rule(DRIVER)) == []
    assert schedulers_told(tmp_path, *both, taint_rule("other.example.com")) == pair
    assert schedulers_told(tmp_path, held("a", "p"), ours) == []
    assert schedulers_told(tmp_path, held("b", "q"), theirs) == []
    over = {**theirs, "status": {"phase": "Succeeded"}}
    assert schedulers_told(tmp_path, held("a", "p"), held("b", "q", device="gpu-1"), ours, over) == []


def test_a_managed_driver_without_a_fence_is_open_to_any_other_scheduler(tmp_path):
    bridge = {"schedulerName": "packer", "drivers": [DRIVER]}
    assert schedulers_told(tmp_path, pod("p"), bridge=bridge) == ["packer and any other scheduler"]
    assert schedulers_told(tmp_path, pod("p"), bridge=bridge | {"fence": True}) == []
    assert schedulers_told(tmp_path, pod("p"), taint_rule(DRIVER), bridge=bridge) == []
    packed = [held("a", "p"), pod("p", "a", schedulerName="packer")]
    assert schedulers_told(tmp_path, *packed, bridge=bridge) == ["packer and any other scheduler"]


@pytest.mark.parametrize(
    "objects",
    [
        pytest.param([taint_rule(DRIVER), let_in("a"), waiting("a")], id="a claim that tolerates it"),
        pytest.param([taint_rule("other.example.com"), claim("a"), waiting("a")], id="another driver's"),
        pytest.param([claim("a"), waiting("a")], id="no fence"),
        pytest.param([taint_rule(DRIVER), claim("a"), pod("p", "a")], id="no scheduler has looked yet"),
        pytest.param([taint_rule(DRIVER), held("a", "p"), waiting("a")], id="a pod with its devices"),
        pytest.param([taint_rule(DRIVER), claim("a"), waiting("a", nodeName="n0")], id="a pod with a node"),
        pytest.param(
            [
                taint_rule(DRIVER),
                device_class("free", selectors=[{"cel": {"expression": "false"}}]),
                either("a"),
                waiting("a"),
            ],
            id="a claim that may have something else",
        ),
    ],
)
def test_only_pods_that_do_not_tolerate_the_fence_wait_behind_it(objects, tmp_path):
    code, answer = run_json("doctor", "-f", manifest(tmp_path / "dump.yaml", *FLEET, *objects))
    assert (code, answer["configuration"], answer["findings"], answer["unread"]) == (0, DEFAULTS, [], [])


def waiting_by_name(**more):
    """A waiting pod that asks by the name of a class."""
    resources = {"limits": {"example.com/gpu": "1"}}
    spec = {"schedulerName": "default-scheduler", "containers": [{"name": "c", "resources": resources}]}
    return waiting(**spec | more)


@pytest.mark.parametrize(
    ("objects", "waits"),
    [
        pytest.param([taint_rule(DRIVER), waiting_by_name()], True, id="O110"),
        pytest.param([taint_rule(DRIVER), waiting_by_name(schedulerName="")], True, id="of a file without a scheduler"),
        pytest.param([taint_rule("other.example.com"), waiting_by_name()], False, id="another driver's"),
        pytest.param([taint_rule(DRIVER), waiting_by_name() | {"status": {}}], False, id="no scheduler has looked yet"),
        pytest.param([taint_rule(DRIVER), waiting_by_name(nodeName="n0")], False, id="a pod with a node"),
        pytest.param([taint_rule(DRIVER), waiting_by_name(schedulerName="drawbridge")], False, id="the bridge's"),
    ],
)
def test_a_pod_that_core_serves_by_name_waits_behind_the_fence(objects, waits, tmp_path):
    served = device_class(extendedResourceName="example.com/gpu")
    dump = manifest(tmp_path / "dump.yaml", *FLEET[1:], served, *objects)
    _, answer = run_json("doctor", "-f", dump)
    assert [finding["code"] for finding in answer["findings"]] == ["O110"] * waits
    assert all("default-scheduler for example.com/gpu" in finding["message"] for finding in answer["findings"])


SERVED = device_class(extendedResourceName="example.com/gpu")
HOLLOW = device_class("hollow", selectors=[{"cel": {"expression": "false"}}], extendedResourceName="example.com/gpu")
HOLLOW["metadata"]["creationTimestamp"] = "2026-06-01T00:00:00Z"  # the newest class of a name serves it
REPAIRS = taint_rule(DRIVER)
REPAIRS["spec"]["taint"] = {"key": "example.com/repairs", "effect": "NoSchedule"}


def by_name(name="example.com/gpu", **more):
    return waiting_by_name(containers=[{"name": "c", "resources": {"limits": {name: "1"}}}], **more)


@pytest.mark.parametrize(
    ("objects", "what", "about"),
    [
        pytest.param([REPAIRS, by_name()], "O111", "DeviceTaintRule", id="O111"),
        pytest.param([HOLLOW, by_name()], "O108", "DeviceClass/hollow", id="a newer class has the name"),
        pytest.param([by_name("deviceclass.resource.kubernetes.io/none")], "O107", "DeviceClass/none", id="no class"),
    ],
)
def test_a_pod_that_core_serves_by_name_is_judged_by_the_claim_that_core_would_make(objects, what, about, tmp_path):
    _, answer = run_json("doctor", "-f", manifest(tmp_path / "dump.yaml", *FLEET[1:], SERVED, *objects))
    [finding] = answer["findings"]
    assert finding["code"] == what
    assert finding["object"].startswith(about)
    assert "od/default/p" in finding["message"]


@pytest.mark.parametrize(
    "objects",
    [
        pytest.param([by_name()], id="devices are there"),
        pytest.param([REPAIRS, by_name(nodeName="n0")], id="it has a node"),
        pytest.param(
            [HOLLOW, by_name(), node("n5", allocatable={"example.com/gpu": "1"})], id="a device plugin serves the name"
        ),
    ],
)
def test_a_pod_that_may_be_served_by_name_has_no_finding(objects, tmp_path):
    dump = manifest(tmp_path / "dump.yaml", *FLEET[1:], SERVED, *objects)
    assert run_json("doctor", "-f", dump)[1]["findings"] == []


def test_unused_claims_of_a_namespace_are_counted_in_one_finding(tmp_path):
    dump = manifest(tmp_path / "dump.yaml", *FLEET, lone("a"), lone("b", minutes=90), pod("p"))
    [finding] = run_json("doctor", "-f", dump)[1]["findings"]
    assert finding["object"] == "ResourceClaim/default/b"  # the oldest
    assert "namespace default has 2 claims" in finding["message"]
    assert finding["message"].endswith("b, a")


OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "pod-p", "controller": True}
NAMING = {
    "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "nightly", "namespace": "default"},
    "spec": {"jobTemplate": {"spec": {"template": {"spec": {"resourceClaims": [{"name": "d", "resourceClaimName": "a"}]}}}}},
}  # fmt: skip


@pytest.mark.parametrize(
    "objects",
    [
        pytest.param([lone("a", minutes=5), pod("p")], id="young"),
        pytest.param([lone("a"), pod("p", "a")], id="a pod names it"),
        pytest.param([lone("a"), pod("p"), NAMING], id="a template names it"),
        pytest.param([lone("a", ownerReferences=[OWNER]), pod("p")], id="it has an owner"),
        pytest.param([lone("a")], id="no pods were read"),
    ],
)
def test_a_claim_that_may_be_used_yet_is_not_called_unused(objects, tmp_path):
    dump = manifest(tmp_path / "dump.yaml", *FLEET, *objects)
    assert run_json("doctor", "-f", dump)[1]["findings"] == []


async def test_in_a_cluster_a_claim_is_unused_if_no_pod_names_it():
    cluster = loaded(*FLEET, claim("a"), claim("b"), pod("p", "a"))
    findings = diagnose(await survey(cluster, datetime.now(UTC) + timedelta(hours=1)))
    assert [finding.object for finding in findings if finding.code == "O217"] == ["ResourceClaim/default/b"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nvidia.com/gpu", "recreate the pod where the webhook translates it"),
        ("example.com/gpu", "the webhook translates no example.com/gpu into a claim"),
        ("deviceclass.resource.kubernetes.io/class", "the webhook translates no deviceclass"),
    ],
)
def test_only_pods_that_could_be_translated_are_told_to_come_again(name, expected, tmp_path):
    served = device_class("class", extendedResourceName=name if name.count(".") == 1 else "example.com/other")
    resources = {"limits": {name: "1"}}
    item = waiting_by_name(containers=[{"name": "c", "resources": resources}])
    dump = manifest(tmp_path / "dump.yaml", *FLEET[1:], served, taint_rule(DRIVER), item)
    _, answer = run_json("doctor", "-f", dump)
    [remedy] = [finding["remedy"] for finding in answer["findings"] if finding["code"] == "O110"]
    assert expected in remedy
    assert "schedulerName" in remedy


def test_a_claim_that_tolerates_another_taint_waits_behind_the_fence(tmp_path):
    dump = manifest(tmp_path / "dump.yaml", *FLEET, taint_rule(DRIVER), let_in("a", "other"), waiting("a"))
    _, answer = run_json("doctor", "-f", dump)
    [finding] = answer["findings"]
    assert "drawbridge for devices of gpu.example.com" in finding["message"]


def test_where_nothing_is_wrong_nothing_is_found(tmp_path):
    result = run("doctor", "-f", manifest(tmp_path / "dump.yaml", *FLEET, *well()))
    assert result.exit_code == 0
    assert result.stdout.startswith("Not looked for\n")
    assert result.stdout.endswith("\n0 findings\n")


def test_a_dump_without_pods_says_nothing_about_what_pods_left(tmp_path):
    result = run("doctor", "-f", manifest(tmp_path / "dump.yaml", *FLEET, held("a", "p"), protected("b")))
    assert result.exit_code == 0
    assert run_json("doctor", "-f", str(tmp_path / "dump.yaml"))[1]["findings"] == []
    [line] = [line.split() for line in result.stdout.splitlines() if "Pod" in line.split()]
    assert {"O210", "O211", "O212", "O216", "O217"} <= {*line}


def test_claims_that_no_server_has_seen_are_told_apart_by_their_names(tmp_path):
    claims = [held("a"), held("b")]
    for obj in claims:
        del obj["metadata"]["uid"]
    _, answer = run_json("doctor", "-f", manifest(tmp_path / "dump.yaml", *FLEET, *claims))
    assert [finding["code"] for finding in answer["findings"]] == ["O209"]


@pytest.mark.parametrize("options", [["--yes", "-f", "dump.yaml"], [], ["-o", "json"]])
def test_repair_without_a_cluster_or_confirmation_is_refused_with_a_remedy(options):
    result = run("doctor", "--repair", *options)
    assert result.exit_code == 2
    assert ("leave --repair out" if "-f" in options else "give --yes") in result.stderr


def test_a_cluster_that_does_not_answer_is_not_a_finding(tmp_path):
    where = {"server": "http://127.0.0.1:1"}
    kubeconfig = manifest(
        tmp_path / "kubeconfig",
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": where}],
            "users": [{"name": "c", "user": {}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
        },
    )
    code, answer = run_json("doctor", "--kubeconfig", kubeconfig)
    assert code == 3
    assert answer["findings"] == []
    assert answer["errors"]


async def test_a_repaired_finding_is_not_found_again():
    cluster = loaded(*FLEET, held("a", "gone"), protected("b"), made_for("c", "gone"), unused(), pod("p"))
    ills = list((await look(cluster)).items())
    assert [ill[0].code for ill in ills] == ["O210", "O211", "O212", "O216"]
    assert [await write_repair(cluster, ill[1]) for ill in ills] == [""] * 4
    # A claim that is not allocated any more has a finalizer too much; a cluster has a controller for that.
    [(left, repair)] = (await look(cluster)).items()
    assert (left.object, await write_repair(cluster, repair)) == ("ResourceClaim/default/a", "")
    assert await look(cluster) == {}
    freed = await cluster.get(resources.RESOURCE_CLAIMS, "a", "default")
    assert (freed.status.allocation, freed.status.reserved_for) == (None, ())


async def test_an_object_changed_since_the_finding_is_not_repaired():
    cluster = loaded(*FLEET, held("a", "gone"), made_for("c", "gone"), pod("p"))
    ills = list((await look(cluster)).items())
    for name in ("a", "c"):
        await cluster.patch(resources.RESOURCE_CLAIMS, name, Merge({"metadata": {"labels": {"x": "y"}}}), "default")
    answers = [await write_repair(cluster, ill[1]) for ill in ills]
    assert answers == ["it has changed: run doctor again"] * 2
    assert (await cluster.get(resources.RESOURCE_CLAIMS, "a", "default")).status.allocation is not None
    assert await cluster.get(resources.RESOURCE_CLAIMS, "c", "default")


async def test_an_object_deleted_since_the_finding_is_reported_as_gone():
    cluster = loaded(*FLEET, made_for("c", "gone"), pod("p"))
    [ill] = (await look(cluster)).items()
    await cluster.delete(resources.RESOURCE_CLAIMS, "c", "default")
    assert await write_repair(cluster, ill[1]) == "it no longer exists"
    with pytest.raises(NotFound):
        await cluster.get(resources.RESOURCE_CLAIMS, "c", "default")


async def look(cluster):
    return diagnose(await survey(cluster, datetime.now(UTC)))


def placed(name, *claims):
    return pod(name, *claims, nodeName="n0")


async def yielding(*objects):
    """Which claims would give way."""
    [ill] = (await look(loaded(*FLEET, *objects))).items()
    return [holding.metadata.name for holding in ill[1].claims] if ill[1] is not None else None


async def test_of_claims_that_hold_the_same_those_give_way_whose_pods_are_on_no_node():
    a, b = held("a", "p"), held("b", "q")
    assert await yielding(a, b, placed("p", "a"), pod("q", "b")) == ["b"]
    assert await yielding(a, b, pod("p", "a"), placed("q", "b")) == ["a"]
    assert await yielding(a, b, placed("p", "a"), placed("q", "b")) is None
    early, late = held("a", "p"), held("b", "q")
    early["status"]["allocation"]["allocationTimestamp"] = "2026-01-01T00:00:02Z"
    late["status"]["allocation"]["allocationTimestamp"] = "2026-01-01T00:00:01Z"
    assert await yielding(early, late, pod("p", "a"), pod("q", "b")) == ["a"]


async def test_an_overlap_is_write_repair_once_and_found_no_more():
    cluster = loaded(*FLEET, held("a", "p"), held("b", "q"), placed("p", "a"), pod("q", "b"))
    [ill] = (await look(cluster)).items()
    assert await write_repair(cluster, ill[1]) == ""
    freed = await cluster.get(resources.RESOURCE_CLAIMS, "b", "default")
    assert (freed.status.allocation, freed.status.reserved_for) == (None, ())
    assert await write_repair(cluster, ill[1]) == "it has changed: run doctor again"
    assert [finding for finding in await look(cluster) if finding.code == "O209"] == []


async def test_a_pod_that_came_to_a_node_meanwhile_keeps_its_devices():
    """Binding it changes no claim, so the claim's version does not tell."""
    cluster = loaded(*FLEET, held("a", "p"), held("b", "q"), placed("p", "a"), pod("q", "b"))
    [ill] = (await look(cluster)).items()
    await cluster.bind("q", "default", "n0", uid="pod-q")
    assert await write_repair(cluster, ill[1]) == "pod q is on a node now: run doctor again"
    assert (await cluster.get(resources.RESOURCE_CLAIMS, "b", "default")).status.allocation is not None


async def test_a_missing_fence_is_made_once():
    cluster = loaded(*FLEET, pod("p"))
    seen = await survey(cluster, datetime.now(UTC), FENCING)
    [ill] = diagnose(seen).items()
    assert await write_repair(cluster, ill[1]) == ""
    assert diagnose(await survey(cluster, datetime.now(UTC), FENCING)) == {}
    assert await write_repair(cluster, ill[1]) == "it exists now: run doctor again"


async def test_a_fence_rule_that_covers_less_is_reported_and_not_repaired():
    rule = taint_rule(DRIVER)
    rule["spec"]["deviceSelector"]["pool"] = "n0"
    [ill] = diagnose(await survey(loaded(*FLEET, pod("p"), rule), datetime.now(UTC), FENCING)).items()
    assert (ill[0].code, ill[1]) == ("O206", None)


async def test_a_rule_whose_taint_has_no_effect_fences_nothing():
    rule = taint_rule(DRIVER)
    rule["spec"]["taint"]["effect"] = "None"
    [ill] = diagnose(await survey(loaded(*FLEET, pod("p"), rule), datetime.now(UTC), FENCING)).items()
    assert (ill[0].code, ill[1]) == ("O206", None)


def test_a_write_that_is_refused_is_told_and_the_others_go_on(monkeypatch):
    cluster = loaded(*FLEET, made_for("c", "gone"), made_for("d", "gone"), pod("p"))
    delete = cluster.delete

    async def refuse(resource, name, *rest, **more):
        if name == "c":
            raise Forbidden("nurse may not delete resourceclaims")
        return await delete(resource, name, *rest, **more)

    monkeypatch.setattr(cluster, "delete", refuse)
    monkeypatch.setattr(Kubernetes, "connect", lambda **_: cluster)
    code, answer = run_json("doctor", "--repair", "--yes")
    assert code == 1
    first, second = answer["findings"]
    assert (first["repaired"], second["repaired"]) == (False, True)
    assert "nurse may not delete resourceclaims" in first["problem"]


async def test_a_server_without_claims_is_not_a_healthy_cluster(monkeypatch):
    cluster = loaded()

    async def unknown(*_, **__):
        raise NotFound("the server could not find the requested resource")

    monkeypatch.setattr(cluster, "list", unknown)
    with pytest.raises(CommandFailed, match="has no ResourceClaims"):
        await look(cluster)


@pytest.mark.parametrize(
    "changes", [{"minutes": 4}, {"minutes": 6, "status": "True"}, {"minutes": 6, "driver": DRIVER}]
)
def test_a_pod_that_waits_for_something_else_is_not_blamed_on_a_driver(changes, tmp_path):
    _, answer = run_json("doctor", "-f", manifest(tmp_path / "dump.yaml", *FLEET, *once_only(**changes)))
    assert "O113" not in {finding["code"] for finding in answer["findings"]}


async def test_agent_events_are_reported_and_idle_marks_are_repaired():
    other = audit_event("DeviceNotAllocated", "said by another component") | {"reportingComponent": "kubelet"}
    cluster = loaded(*FLEET, pod("p"), mark(3600), audit_event("DeviceGivenTwice", "two have it"), other)
    ills = list((await look(cluster)).items())
    assert ills[0][0].message == "two have it"
    assert [ill[0].code for ill in ills] == ["O221", "O213"]
    assert await write_repair(cluster, ills[1][1]) == ""
    assert [finding.code for finding in await look(cluster)] == ["O221"]


async def test_an_event_says_why_a_daemon_set_has_no_pod():
    """It has no condition for it, unlike a Deployment."""
    labels = {"app.kubernetes.io/name": "drawbridge", "app.kubernetes.io/component": "driver"}
    about = {"name": "drawbridge-driver", "namespace": "default", "labels": labels}
    status = {"observedGeneration": 1, "desiredNumberScheduled": 1, "numberReady": 0}
    spec = {"template": {"metadata": {"labels": labels}}}
    daemon_set = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": about, "spec": spec, "status": status}
    event = audit_event("FailedCreate", 'violates PodSecurity "restricted"', kind="DaemonSet")
    event["involvedObject"] |= {"name": about["name"], "namespace": about["namespace"]}
    installed = daemon_set | {"kind": "Deployment", "metadata": about | {"name": "drawbridge-webhook"}}
    cluster = loaded(*FLEET, pod("p"), daemon_set, installed, event)
    [ill] = [finding for finding in await look(cluster) if finding.object == "DaemonSet/default/drawbridge-driver"]
    assert ill.message == '0 of 1 replicas are ready: no pod can be created: violates PodSecurity "restricted"'


async def test_doctor_without_access_to_events_reports_the_rest(monkeypatch):
    cluster = loaded(*FLEET, pod("p"), mark(3600))
    real = cluster.list

    async def without(resource, *rest, **options):
        if resource.id == "events":
            raise Forbidden("events is forbidden")
        return await real(resource, *rest, **options)

    monkeypatch.setattr(cluster, "list", without)
    seen = await survey(cluster, datetime.now(UTC))
    assert [finding.code for finding in diagnose(seen)] == ["O213"]
    assert [(missed.kind, missed.reason) for missed in seen.reading.unread] == [("events", "events is forbidden")]


def untranslated(**meta):
    """A waiting pod that asks for whole GPUs in the words of a device plugin."""
    resources = {"limits": {"nvidia.com/gpu": "1"}, "requests": {"nvidia.com/gpu": "1"}}
    obj = waiting(containers=[{"name": "c", "resources": resources}])
    obj["metadata"] |= meta
    return obj


def team(mode):
    labels = {"drawbridge.dev/mode": mode} if mode else {}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default", "labels": labels}}


def quota_of(key):
    return resource_quota("q", {key: "4"})


OWNED = [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": True}]
NOT_TRANSLATED = [
    ([team("enforce"), untranslated(ownerReferences=OWNED)], "webhook was down", "delete the pod, and Job j creates another"),
    ([team("enforce"), untranslated()], "webhook was down", "delete the pod and create it again"),
    ([team("warn"), untranslated()], "has the label drawbridge.dev/mode=warn", "set drawbridge.dev/mode=enforce there; then"),
    ([untranslated()], "the configuration says mode: observe", "set drawbridge.dev/mode=enforce there; then"),
    ([team("enforce"), untranslated(), quota_of("requests.nvidia.com/gpu")], "ResourceQuota", "correct the name"),
    ([team("enforce"), untranslated(labels={"drawbridge.dev/skip": "true"})], "keeps it from the webhook", "remove the label"),
    ([team("enforce"), untranslated(annotations={"drawbridge.dev/original": "x"})], "", ""),
    ([team("enforce"), untranslated(), node("n1", allocatable={"nvidia.com/gpu": "8"})], "", ""),
    ([team("enforce"), untranslated(), device_class("g", extendedResourceName="nvidia.com/gpu")], "", ""),
]  # fmt: skip


@pytest.mark.parametrize(("objects", "message", "remedy"), NOT_TRANSLATED)
def test_a_pod_that_was_never_translated_and_that_no_node_can_serve_is_told_of(objects, message, remedy, tmp_path):
    findings = [finding for finding in found_with(tmp_path, *objects) if finding["code"] in ("O103", "O104")]
    assert [message in finding["message"] and remedy in finding["remedy"] for finding in findings] == [True] * bool(
        message
    )


@pytest.mark.parametrize(
    ("stopped", "status", "first"),
    [
        (["webhook"], {"readyReplicas": 0}, "Deployment/drawbridge-system/drawbridge-webhook (O009: "),
        (["authority", "webhook"], {"readyReplicas": 0}, "Deployment/drawbridge-system/drawbridge-authority (O009: "),
        (["webhook"], {"readyReplicas": 1}, ""),
        (["controller"], {"readyReplicas": 0}, ""),
    ],
)
def test_an_untranslated_pod_is_to_be_recreated_once_the_webhook_runs(stopped, status, first, tmp_path):
    objects = [obj for obj in installation() if "apiVersion" in obj]
    for name in stopped:
        of(objects, "Deployment", f"drawbridge-{name}")["status"] |= status
    [finding] = [
        one for one in found_with(tmp_path, team("enforce"), untranslated(), *objects) if one["code"] == "O103"
    ]
    remedy = finding["remedy"]
    assert remedy.endswith("delete the pod and create it again")
    assert remedy.startswith(f"first mend {first}" if first else "delete the pod")


def found_with(tmp_path, *objects, fleet=OF_NVIDIA):
    """What is found on a fleet of NVIDIA's driver."""
    config = manifest(tmp_path / "configuration.yaml", {key: CONFIGURATION[key] for key in ("apiVersion", "kind")} | {"mode": "observe"})  # fmt: skip
    manifest(dump := tmp_path / "dump.yaml", *fleet, *objects)
    dump.write_text(dump.read_text().replace(DRIVER, NVIDIA))
    return run_json("doctor", "-f", str(dump), "--config", config)[1]["findings"]


def nvidia_slice(type_):
    """A slice of NVIDIA's driver with a device of a type."""
    obj = gpus("n0", 1)
    obj["spec"]["devices"][0]["attributes"] = {"type": {"string": type_}}
    return obj


@pytest.mark.parametrize(
    ("objects", "settings", "missing"),
    [
        ([device_class("other"), nvidia_slice("gpu")], {}, {NVIDIA: "driver gpu.nvidia.com (target gpu)"}),
        ([device_class(NVIDIA), nvidia_slice("mig")], {}, {"mig.nvidia.com": "driver gpu.nvidia.com (target mig)"}),
        ([device_class(NVIDIA), nvidia_slice("gpu")], {}, {}),
        ([device_class("hami-core-gpu.project-hami.io"), nvidia_slice("gpu")], {}, {}),
        ([device_class("ours"), nvidia_slice("gpu")], {"classes": {"gpu": "ours"}}, {}),
        ([device_class("other"), nvidia_slice("gpu")], {"classes": {"gpu": "ours"}}, {"ours": "the configuration (classes.gpu)"}),
        ([device_class("a")], {"kueue": {"deviceClasses": ["a", "b"]}}, {"b": "the configuration (kueue.deviceClasses)"}),
        ([nvidia_slice("gpu")], {}, {}),
        ([device_class("other"), nvidia_slice("gpu")], None, {}),
        ([device_class("other"), unused()], {}, {"gpu": f"ResourceClaimTemplate/default/{unused()['metadata']['name']}"}),
    ],
)  # fmt: skip
def test_a_class_that_pods_to_come_need_is_missed_before_one_waits(tmp_path, objects, settings, missing):
    of_file = {key: CONFIGURATION[key] for key in ("apiVersion", "kind")}
    given = ["--config", manifest(tmp_path / "configuration.yaml", of_file | settings)] if settings is not None else []
    manifest(dump := tmp_path / "dump.yaml", node("n0"), pod("p"), *objects)
    dump.write_text(dump.read_text().replace(DRIVER, NVIDIA))
    findings = run_json("doctor", "-f", str(dump), *given)[1]["findings"]
    told_of = {finding["object"]: finding["message"] for finding in findings if finding["code"] == "O107"}
    assert told_of.keys() == {f"DeviceClass/{name}" for name in missing}
    assert [name for name, by in missing.items() if by not in told_of[f"DeviceClass/{name}"]] == []


def test_a_name_for_which_no_claim_can_be_made_is_told_of_once_with_its_pods(tmp_path):
    """What only an administrator can fix."""
    two = [untranslated(), untranslated(name="q", uid="q")]
    findings = found_with(tmp_path, team("enforce"), *two, fleet=FLEET[1:])
    [finding] = [ill for ill in findings if ill["code"] == "O104"]
    assert "no DeviceClass of a whole GPU exists" in finding["message"]
    assert "default/p" in finding["message"]
    assert "default/q" in finding["message"]


def misspelt(**changes):
    obj = untranslated(**changes)
    obj["spec"]["containers"][0]["resources"] = {"limits": {"nvdia.com/gpu": "1"}}
    return obj


@pytest.mark.parametrize("mode", ["enforce", "observe"])
def test_a_misspelt_name_is_told_of_with_the_one_that_is_meant(tmp_path, mode):
    findings = found_with(tmp_path, team(mode), misspelt(), misspelt(name="q", uid="q"))
    [finding] = [ill for ill in findings if ill["code"] == "O104"]
    assert finding["object"] == "Pod/default/p"
    assert (
        finding["message"]
        == "no node has nvdia.com/gpu, for which default/p, default/q wait: did you mean nvidia.com/gpu?"
    )
    with_plugin = node("n1", allocatable={"nvdia.com/gpu": "8"})
    assert "O104" not in {finding["code"] for finding in found_with(tmp_path, team(mode), misspelt(), with_plugin)}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"bridge": BRIDGE | {"drivers": ["gpu.nvdia.com"]}}, "bridge.drivers names driver gpu.nvdia.com, which publishes no ResourceSlice: did you mean gpu.nvidia.com?"),
        ({"evidence": {"drivers": ["gpu.nvidia.com", "gpu.nvida.com"]}}, None),
        ({"evidence": {"drivers": ["gpu.nvida.com"]}}, "evidence.drivers names driver gpu.nvida.com, which publishes no ResourceSlice: did you mean gpu.nvidia.com?"),
        ({"evidence": {"drivers": ["gpu.nvidia.com", "dra.net"]}}, None),
        ({"evidence": {"namespaces": ["gpu-operater"]}}, "evidence.namespaces names namespace gpu-operater, which does not exist: did you mean gpu-operator?"),
        ({"evidence": {"namespaces": ["gpu-operator", "kube-system"]}}, None),
        ({"extendedResources": {"drivers": {"gpu.nvidai.com": "leave"}}}, "extendedResources.drivers names driver gpu.nvidai.com, which publishes no ResourceSlice: did you mean gpu.nvidia.com?"),
        ({"extendedResources": {"namespaces": {"gpu-operators": "leave"}}}, "extendedResources.namespaces names namespace gpu-operators, which does not exist: did you mean gpu-operator?"),
        ({"cpuClaims": {"namespaces": {"defualt": "translate"}}}, "cpuClaims.namespaces names namespace defualt, which does not exist: did you mean default?"),
        ({"mixed": {"nvidia.com/gpu": {"prefer": "dra", "namespaces": {"defaults": {"prefer": "plugin"}}}}}, "mixed.nvidia.com/gpu.namespaces names namespace defaults, which does not exist: did you mean default?"),
    ],
)  # fmt: skip
def test_a_driver_or_a_namespace_that_the_configuration_misspells_is_told_of(tmp_path, settings, message):
    of_file = {key: CONFIGURATION[key] for key in ("apiVersion", "kind")}
    config = manifest(tmp_path / "configuration.yaml", of_file | settings)
    operator = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gpu-operator"}}
    manifest(dump := tmp_path / "dump.yaml", *OF_NVIDIA, team("enforce"), operator)
    dump.write_text(dump.read_text().replace(DRIVER, NVIDIA))
    findings = run_json("doctor", "-f", str(dump), "--config", config)[1]["findings"]
    assert [finding["message"] for finding in findings if finding["code"] == "O019"] == ([message] if message else [])


def test_a_webhook_refusal_for_an_administrator_to_fix_is_reported_once(tmp_path):
    denied = 'pods "a-" is forbidden: admission webhook "pods.mutate.drawbridge.dev" denied the request: '
    messages = [
        denied + "it requests DeviceClass a, which does not exist (ask an administrator)",
        denied + "ask for less",
    ]
    events = [audit_event("FailedCreate", text, age) for age, text in enumerate([messages[0], *messages])]
    findings = [finding for finding in found_with(tmp_path, *events) if finding["code"] == "O102"]
    assert [finding["message"] for finding in findings] == [messages[0].removeprefix(denied)]


@pytest.mark.parametrize(("age", "made", "reported"), [(120, False, True), (20, False, False), (120, True, False)])
def test_a_pod_whose_template_was_not_made_within_a_minute_is_told_of(age, made, reported, tmp_path):
    obj = pod("p", resourceClaims=[{"name": "c", "resourceClaimTemplateName": unused()["metadata"]["name"]}])
    obj["metadata"]["creationTimestamp"] = (datetime.now(UTC) - timedelta(seconds=age)).isoformat()
    template_of_it = [unused()] * made
    _, answer = run_json("doctor", "-f", manifest(tmp_path / "dump.yaml", *FLEET, obj, *template_of_it))
    assert [finding["code"] for finding in answer["findings"]] == ["O105"] * reported


def test_ages_in_a_dump_are_told_by_its_own_time(tmp_path):
    """A snapshot of a healthy cluster has no findings a year later, and one with an idle Lease still has that."""
    beat, ours = lease(500), lease(505)
    beat["metadata"] = {"name": "n0", "namespace": "kube-node-lease"}
    assert run_json("doctor", "-f", manifest(tmp_path / "a.yaml", *FLEET, pod("p"), beat, ours))[0] == 0
    _, answer = run_json("doctor", "-f", manifest(tmp_path / "b.yaml", *FLEET, pod("p"), beat, lease(900)))
    assert [finding["code"] for finding in answer["findings"]] == ["O017"]


async def test_unreadable_resources_are_named_and_lead_to_no_finding(monkeypatch):
    cluster = loaded(*FLEET, claim("a", class_name="none"), held("b", "gone"), pod("p", "a"))
    real = cluster.list

    async def few(resource, *rest, **options):
        if resource.id not in ("pods", "nodes"):
            raise Forbidden(f"{resource.id} is forbidden")
        return await real(resource, *rest, **options)

    monkeypatch.setattr(cluster, "list", few)
    seen = await survey(cluster, datetime.now(UTC))
    assert seen.missing["ResourceClaim"] == "resourceclaims.resource.k8s.io is forbidden"
    assert diagnose(seen) == {}


def test_a_dump_without_slices_has_no_class_without_devices_and_says_that_it_lacks_slices(tmp_path):
    classes = [device_class("gpu"), device_class("other")]
    claims = [claim("a"), claim("b", class_name="other")]
    _, answer = run_json("doctor", "-f", manifest(tmp_path / "dump.yaml", *classes, *claims))
    assert answer["findings"] == []
    [lacking] = [entry for entry in answer["notChecked"] if entry["inputs"] == ["ResourceSlice"]]
    assert lacking["codes"] == ["O108", "O111", "O218"]
    assert "kubectl get KIND" in lacking["reason"]


@pytest.mark.parametrize("kind", [obj.kind for obj in resources.ALL if obj.kind != "Workload"])
@pytest.mark.parametrize("field", ["apiVersion", "metadata", "status"])
def test_an_object_of_another_shape_is_named_with_its_line(tmp_path, kind, field):
    known = next(obj for obj in resources.ALL if obj.kind == kind)
    labels = {"app.kubernetes.io/name": "drawbridge"}
    obj = {"apiVersion": known.api_version, "kind": kind, "metadata": {"name": "drawbridge", "labels": labels}}
    done = run("doctor", "-f", manifest(tmp_path / "dump.yaml", obj | {field: 7}))
    assert done.exit_code in (0, 1, 3), done.output
    assert ("dump.yaml:1: " in done.output) is ("warning: not read: " in done.output) is (done.exit_code == 3)
    assert "this is a bug" not in done.output


def test_an_object_that_cannot_be_read_hides_no_finding_about_others(tmp_path):
    objects, name, _ = ILLS["O212"]
    odd = node("odd") | {"metadata": {"name": "odd", "labels": 3}}
    code, answer = run_json("doctor", "-f", manifest(tmp_path / "dump.json", *FLEET, odd, *objects))
    assert (code, [(finding["code"], finding["object"]) for finding in answer["findings"]]) == (1, [("O212", name)])
    [unread] = answer["unread"]
    assert unread["kind"] == "Node default/odd"
    assert "/metadata/labels" in unread["reason"]


@pytest.mark.parametrize("form", ["sarif", "github", "junit", "markdown", "html", "text"])
def test_a_finding_and_its_repair_are_written_in_each_form(form, tmp_path):
    objects, name, repair = ILLS["O212"]
    done = run("doctor", "-f", manifest(tmp_path / "dump.json", *objects), "-o", form)
    assert done.exit_code == 1
    assert ("O212" in done.stdout, name in done.stdout, "O212 :" in done.stdout) == (True, True, False)
    assert (f"--repair would {repair}" in done.stdout) is (form in ("text", "markdown", "html"))


def test_findings_are_written_by_object_with_their_repairs(tmp_path):
    output = run(
        "doctor", "-f", manifest(tmp_path / "dump.json", *FLEET, protected("a"), protected("b"), pod("p"))
    ).stdout
    assert output.startswith(
        "".join(
            f"ResourceClaim/default/{name}\n  warning O212: it has the finalizer of an allocation, and no allocation\n"
            "      remove the finalizer: nothing is held, and it prevents the claim's deletion\n"
            "      --repair would remove its finalizer\n\n"
            for name in "ab"
        )
    )
    assert output.endswith("\n2 findings\n")


def test_every_code_of_doctor_is_explained():
    output = run("explain", "O209").stdout
    assert output.startswith("O209 error: claims that hold a device that only one of them may hold\n")


@pytest.mark.parametrize("ill", ["O209", "O212", "O215"])
def test_doctor_and_check_name_an_object_in_one_form(ill, tmp_path):
    """A claim that `doctor` finds something about, and `check` too (D002: a field that does not exist)."""
    objects = {**ILLS, "O215": ([held("a", "p") | {"metadata": held("a")["metadata"] | {"finalizers": ["x.example.com/y"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}, pod("p", "a")], "", "")}[ill][0]  # fmt: skip
    file = manifest(tmp_path / "dump.yaml", *FLEET, *objects)
    manifest(tmp_path / "checked.yaml", *FLEET, *[obj | {"more": 1} for obj in objects])
    _, treated = run_json("doctor", "-f", file)
    _, judged = run_json("check", "-f", str(tmp_path / "checked.yaml"))
    names = {finding["object"] for finding in treated["findings"] if finding["code"] == ill}
    assert names
    assert names <= {finding["object"] for finding in judged["findings"] if finding["code"] == "D002"}
