"""All claims of a pod are judged in the review that translates it, its own with ours: with the words that validation has."""

import base64
import json

import msgspec
import pytest

from dra import wire
from dra.objects import ResourceClaim, ResourceClaimSpec, claim_spec
from dra.objects.node import Node
from dra.stock.stock import Stock
from tests.webhook.admission.test_decide import (
    CLASS,
    ENFORCE,
    GPU,
    NODE,
    SLICE,
    STOCK,
    answer,
    applied,
    gpu_pod,
    mutated,
    review,
    state,
    translated,
    untouched,
    validated,
)
from tests.webhook.pods import configured
from webhook.admission import decide, decide_object
from webhook.admission import review as admission
from webhook.state import Configuration
from webhook.state.inventory import Inventory
from webhook.state.node_templates import prospects
from webhook.state.schema import DEFAULT

TOO_MANY = gpu_pod(limits={"nvidia.com/gpu": "16"})
WAYS = {"more than any node has": "5", "many": "16"}


def given(obj, world=ENFORCE, **kwargs):
    """Return the answer that a pod's author gets in the end."""
    return admission.mutate(review(obj), world, **kwargs)


def test_the_feasibility_check_ignores_pods_that_fit():
    assert given(gpu_pod()) == admission.mutate(review(gpu_pod()), ENFORCE)


@pytest.mark.parametrize("count", WAYS.values(), ids=WAYS)
def test_an_impossible_pod_is_refused_with_the_message_of_validation(count):
    asked = gpu_pod(limits={"nvidia.com/gpu": count})
    outcome = given(asked)
    after = translated(asked)
    assert not answer(outcome)["allowed"]
    assert answer(outcome)["status"] == answer(validated(after))["status"]
    assert "patch" not in answer(outcome)
    assert outcome.record.outcome == "refused"
    assert answer(outcome)["auditAnnotations"] == {"outcome": "refused", "mode": "enforce"}


def test_two_containers_with_equal_requests_are_judged_together():
    asked = gpu_pod(limits={"nvidia.com/gpu": "3"})
    [main] = asked["spec"]["containers"]
    asked["spec"]["containers"].append(main | {"name": "other"})
    assert not answer(given(asked))["allowed"], "each alone could be served"


def test_an_impossible_pod_is_translated_if_impossible_is_warn():
    lenient = msgspec.structs.replace(
        ENFORCE, configuration=Configuration(msgspec.structs.replace(DEFAULT, mode="enforce", impossible="warn"))
    )
    outcome = given(TOO_MANY, lenient)
    assert applied(TOO_MANY, outcome) == translated(TOO_MANY)
    assert answer(outcome)["warnings"][0].startswith("this can never work: ")
    assert outcome.record.problems
    assert outcome.record.outcome == "translated"


def test_a_pod_that_comes_with_our_signature_is_judged_again():
    """A manifest that was read from a cluster, or the second round after a neighbour: no other caller asks about it."""
    after = translated(TOO_MANY)
    assert not answer(given(after))["allowed"]
    fine, _ = mutated(gpu_pod())
    assert untouched(given(fine))


# Claims that a pod comes with


def bringing(*entries, limits=None, **metadata):
    item = gpu_pod(limits=limits or {}, **metadata)
    item["spec"]["resourceClaims"] = [{"name": f"own-{number}"} | entry for number, entry in enumerate(entries)]
    return item


def of_devices(count):
    request = {"name": "r", "exactly": {"deviceClassName": GPU, "allocationMode": "ExactCount", "count": count}}
    return {"devices": {"requests": [request]}}


def template_of(count):
    return claim_spec(wire.convert(of_devices(count), ResourceClaimSpec))


def holding(count, **status):
    """A stock with a claim `c`."""
    stored = {"metadata": {"name": "c", "namespace": "ns", "uid": "1"}, "spec": of_devices(count), "status": status}
    return Stock.of(slices=[SLICE], classes=[CLASS], nodes=[NODE], claims=[wire.convert(stored, ResourceClaim)])


BY_TEMPLATE = {"resourceClaimTemplateName": "t"}
BY_NAME = {"resourceClaimName": "c"}


def with_template(count, mode="enforce"):
    return state(mode=mode, templates={("ns", "t"): template_of(count)})


@pytest.mark.parametrize(
    ("item", "world"),
    [
        (bringing(BY_TEMPLATE), with_template(16)),
        (bringing(BY_NAME), state(stock=holding(16))),
        (bringing(BY_TEMPLATE, BY_TEMPLATE), with_template(3)),
        (bringing(BY_TEMPLATE, limits={"nvidia.com/gpu": "3"}), with_template(3)),
    ],
    ids=["made from a template", "written by hand", "two that are too much together", "beside what we gave it"],
)
def test_own_and_translated_claims_are_judged_together(item, world):
    outcome = given(item, world)
    assert not answer(outcome)["allowed"]
    assert "patch" not in answer(outcome)
    assert outcome.record.outcome == "refused"
    after = applied(item, admission.mutate(review(item), msgspec.structs.replace(world, stock=None)))
    assert answer(outcome)["status"] == answer(validated(after, world))["status"]


@pytest.mark.parametrize(
    ("item", "world"),
    [
        (bringing(BY_TEMPLATE), with_template(2)),
        (bringing(BY_NAME), state(stock=holding(2))),
        (bringing(BY_NAME), state(stock=holding(16, allocation={"devices": {"results": []}}))),
        (bringing(BY_TEMPLATE, labels={"drawbridge.dev/skip": "true"}), with_template(16)),
        (bringing(BY_TEMPLATE), with_template(16, mode="off")),
        (bringing(BY_TEMPLATE), msgspec.structs.replace(with_template(16), stock=None)),
    ],
    ids=["fits", "fits by name", "has its devices", "passes by", "namespace is off", "nothing is known"],
)
def test_a_pod_with_feasible_own_claims_is_untouched(item, world):
    assert untouched(given(item, world))


def test_a_pod_with_a_missing_claim_is_warned_and_recorded():
    outcome = given(bringing(BY_NAME), ENFORCE)
    assert answer(outcome)["allowed"]
    assert answer(outcome)["warnings"] == ["ResourceClaim c does not exist yet: the pod waits until it does"]
    assert answer(outcome)["auditAnnotations"] == {"outcome": "warned", "mode": "enforce"}
    assert outcome.record.outcome == "warned"
    assert outcome.record.problems


def test_where_refusals_are_only_told_so_are_those_of_own_claims():
    warned = given(bringing(BY_TEMPLATE), with_template(16, mode="warn"))
    assert answer(warned)["allowed"]
    assert answer(warned)["warnings"][0].startswith("drawbridge would refuse this Pod (warn): ")
    watched = given(bringing(BY_TEMPLATE), with_template(16, mode="observe"))
    assert answer(watched)["allowed"]
    assert "warnings" not in answer(watched)
    assert [one.record.outcome for one in (warned, watched)] == ["would refuse", "would refuse"]
    assert watched.record.problems


def test_observe_mode_records_what_enforce_would_do():
    item = bringing(BY_TEMPLATE, limits={"nvidia.com/gpu": "3"})
    outcome = given(item, with_template(3, mode="observe"))
    assert untouched_but_audited(outcome)
    assert outcome.record.outcome == "would refuse"


def untouched_but_audited(outcome):
    return answer(outcome).keys() == {"uid", "allowed", "auditAnnotations"} and answer(outcome)["allowed"]


def test_an_update_is_not_judged():
    item = bringing(BY_TEMPLATE)
    world = with_template(16)
    outcome = admission.mutate(review(item, operation="UPDATE", old=item), world)
    assert untouched(outcome)


@pytest.mark.parametrize("odd", [None, 7, "x", {"a": 1}, [7, None, {"name": 7}, {"resourceClaimName": ["x"]}]])
def test_entries_of_any_shape_are_answered(odd):
    item = gpu_pod(limits={})
    item["spec"]["resourceClaims"] = odd
    assert answer(given(item))["allowed"]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        (
            "drawbridge-0123456789abcdef0123456789abcdef",
            "is not created for a copy of a translated pod: use its original",
        ),
        ("spec", "does not exist yet: the pod waits"),
        ("own", "does not exist yet: the pod waits"),
    ],
)
def test_an_entry_resembling_ours_counts_by_its_reference(name, says):
    after, _ = mutated(gpu_pod(limits={"nvidia.com/gpu": "3"}))
    after["spec"]["resourceClaims"].append({"name": "drawbridge-more", "resourceClaimTemplateName": name})
    assert f"ResourceClaimTemplate {name} {says}" in answer(given(after))["warnings"][0]
    known = state(templates={("ns", name): template_of(3)})
    assert not answer(given(after, known))["allowed"]


def test_a_translated_pod_that_was_copied_elsewhere_does_not_wait_for_a_template_that_none_creates():
    after, outcome = mutated(gpu_pod())
    copy = admission.mutate(review(after, namespace="elsewhere"), ENFORCE)
    [name] = outcome.record.templates
    said, removed = answer(copy)["warnings"]
    assert said == (
        f"ResourceClaimTemplate {name} is not created for a copy of a translated pod: "
        "use its original manifest, or replace the claims with the requests in drawbridge.dev/original"
    )
    assert "not written by drawbridge for this pod, and removed" in removed
    assert untouched(given(after)), "the same pod again"


def test_a_forged_signature_is_ignored_and_removed():
    after = translated(TOO_MANY)
    (entry,) = after["spec"]["resourceClaims"]
    notes = after["metadata"]["annotations"]
    notes["drawbridge.dev/templates"] = notes["drawbridge.dev/templates"].replace('"count":16', '"count":1')
    stored = state(templates={("ns", entry["resourceClaimTemplateName"]): template_of(16)})
    assert not answer(given(after, stored))["allowed"]
    cleaned = translated(after)
    assert "drawbridge.dev/templates" not in cleaned["metadata"].get("annotations", {})


def test_a_pod_is_allowed_while_the_stock_is_unknown():
    assert answer(given(TOO_MANY, state(stock=None)))["allowed"]


def test_a_verdict_that_times_out_keeps_the_translation(late):
    outcome = admission.mutate(review(TOO_MANY), ENFORCE, impatient=late)
    assert answer(outcome)["allowed"]
    assert "patch" in answer(outcome)
    assert "could not be decided in time" in answer(outcome)["warnings"][0]


@pytest.fixture
def late(monkeypatch):
    """Patience that is lost once the keys are translated, and before the claims are judged."""
    judging = []
    judge_pod = decide.judge_pod

    def judged(*arguments):
        judging.append(True)
        return judge_pod(*arguments)

    monkeypatch.setattr(decide, "judge_pod", judged)
    return lambda: bool(judging)


def test_warnings_that_had_no_room_are_counted_with_those_that_come_later(late):
    asked = gpu_pod(limits={"nvidia.com/gpu": "1", "nvidia.com/priority": "1"})
    [container] = asked["spec"]["containers"]
    asked["spec"]["containers"] = [container | {"name": f"c{number}"} for number in range(7)]
    told = answer(given(asked, impatient=late))["warnings"]
    assert "could not be decided in time" in told[0]
    assert "drawbridge: 4 more" in told[-1]


def test_an_outcome_survives_the_encoding_used_between_worker_and_webhook():
    outcome = admission.mutate(review(TOO_MANY), ENFORCE)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(outcome), type=admission.Answer) == outcome
    assert not json.loads(outcome.body)["response"]["allowed"]


def test_a_pod_served_by_a_device_plugin_is_left():
    """Half of a fleet has moved: no node that publishes devices has sixteen, but a node that has not moved might."""
    others = [wire.convert({"metadata": {"name": name}}, Node) for name in ("m", "o")]
    old = wire.convert({"metadata": {"name": "old"}, "status": {"allocatable": {"nvidia.com/gpu": "16"}}}, Node)
    slices = [SLICE, *(_slice_of(node.metadata.name) for node in others)]
    fleet = Inventory.gather([CLASS], slices, [NODE, *others, old])
    mixed = msgspec.structs.replace(ENFORCE, fleet=fleet)
    forged = gpu_pod(limits={"nvidia.com/gpu": "16"}, annotations={"drawbridge.dev/devices": "[]"})
    outcome = given(forged, mixed)
    said = answer(outcome)
    assert said["allowed"]
    assert "node old still serves nvidia.com/gpu" in said["warnings"][0]
    assert (outcome.record.outcome, {decision.outcome for decision in outcome.record.decisions}) == ("left", {"left"})
    [removal] = json.loads(base64.b64decode(said["patch"]))
    assert removal["path"].startswith("/metadata/annotations"), "what only looks like ours goes all the same"
    assert "left as it is: node old still serves" in " ".join(answer(workload_of(forged, mixed))["warnings"])
    assert answer(given(gpu_pod(limits={"nvidia.com/gpu": "2"}), mixed))["patch"], "what can be served is translated"
    offline = decide_object(forged | {"metadata": {"name": "p", "namespace": "ns"}}, mixed)
    assert not offline.refusals, "files are decided on as the webhook does"
    assert {decision.outcome for decision in offline.decisions} == {"left"}


def in_pool(world, **changes):
    """The same fleet in a pool that an autoscaler manages, with some settings changed."""
    nodes = []
    for node in world.fleet.nodes.values():
        metadata = msgspec.structs.replace(node.metadata, labels={"cloud.google.com/gke-nodepool": "a"})
        nodes.append(msgspec.structs.replace(node, metadata=metadata))
    fleet = Inventory.gather([CLASS], [SLICE, *map(_slice_of, "mo")], nodes)
    file = msgspec.structs.replace(world.configuration.file, **changes)
    return msgspec.structs.replace(world, fleet=fleet, configuration=Configuration(file))


MAY_COME = "this may never work, but an autoscaler may make another node (cloud.google.com/gke-nodepool): none of"


@pytest.mark.parametrize("count", [16, 5])
def test_a_pod_waits_for_an_autoscaler(count):
    many = gpu_pod(limits={"nvidia.com/gpu": str(count)})
    growing = in_pool(ENFORCE)
    said = answer(given(many, growing))
    assert "patch" in said
    assert said["warnings"][0].startswith(MAY_COME.replace("none of", "the only node"))
    assert MAY_COME.partition(" (")[0] in " ".join(answer(workload_of(many, growing))["warnings"])
    done = decide_object(many | {"metadata": {"name": "p", "namespace": "ns"}}, growing)
    assert done.templates
    assert not done.refusals
    assert [(decision.outcome, decision.code, decision.container) for decision in done.decisions] == [
        ("translated", "R023", "main")
    ]
    assert not answer(given(many, in_pool(ENFORCE, impossible="refuse")))["allowed"]
    small = configured(nodeTemplates=[{"name": "t", "allocatable": {"nvidia.com/gpu": "4"}}]).file.node_templates
    assert not answer(given(many, in_pool(ENFORCE, node_templates=small)))["allowed"], "what can come is declared"


def test_a_missing_class_is_refused_even_with_an_autoscaler():
    growing = in_pool(ENFORCE)
    absent = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "absent"}}]}}
    claim = {"kind": "ResourceClaim", "metadata": {"name": "c"}, "spec": absent}
    asked = review(claim, resource="resourceclaims", group="resource.k8s.io")
    assert "no DeviceClass absent" in answer(admission.validate(asked, growing))["status"]["message"]


@pytest.mark.parametrize("impossible", ["auto", "warn"])
def test_a_device_plugin_is_preferred_to_a_waiting_claim(impossible):
    growing = msgspec.structs.replace(in_pool(with_old_node(), impossible=impossible), stock=ENFORCE.stock)
    said = answer(given(gpu_pod(limits={"nvidia.com/gpu": "16"}), growing))
    assert "patch" not in said
    assert "node old still serves nvidia.com/gpu" in said["warnings"][0]


def test_a_pod_impossible_for_both_mechanisms_is_refused():
    old = wire.convert({"metadata": {"name": "old"}, "status": {"allocatable": {"nvidia.com/gpu": "16"}}}, Node)
    others = [wire.convert({"metadata": {"name": name}}, Node) for name in ("m", "o")]
    slices = [SLICE, *(_slice_of(node.metadata.name) for node in others)]
    mixed = msgspec.structs.replace(ENFORCE, fleet=Inventory.gather([CLASS], slices, [NODE, *others, old]))
    mixed = msgspec.structs.replace(mixed, stock=mixed.stock.with_all([*others, old]))
    many = gpu_pod(limits={"nvidia.com/gpu": "17"})
    message = answer(given(many, mixed))["status"]["message"]
    assert "asks for 17 devices of class" in message
    assert "the largest node has 16 (device plugin on old)" in message
    assert len(decide_object(many, mixed).refusals) == 2
    assert "its pods will be refused" in " ".join(answer(workload_of(many, mixed))["warnings"])


def with_old_node():
    labels = {"metadata": {"name": "old", "labels": {"of": "old"}}}
    amounts = {"nvidia.com/gpu": "16", "rdma/hca": "1"}
    old = wire.convert(labels | {"status": {"allocatable": amounts}}, Node)
    mixed = msgspec.structs.replace(
        ENFORCE, fleet=Inventory.gather([CLASS], [SLICE, *map(_slice_of, "mo")], [NODE, old])
    )
    return msgspec.structs.replace(mixed, stock=mixed.stock.with_all([old]))


def test_plugin_keys_and_claims_are_judged_together():
    mixed = with_old_node()
    message = answer(given(gpu_pod(limits={"nvidia.com/gpu": "2", "rdma/hca": "2"}), mixed))["status"]["message"]
    assert message.count("container main asks for 2 rdma/hca, and the largest node has 1 (device plugin on old)") == 1
    assert "nvidia.com/gpu" not in message


@pytest.mark.parametrize(("count", "refused"), [("16", False), ("17", True)])
def test_a_daemon_set_is_not_refused_for_some_nodes(count, refused):
    pods = {"metadata": {}, "spec": gpu_pod(limits={"nvidia.com/gpu": count})["spec"]}
    each = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "d"}, "spec": {"template": pods}}
    assert bool(decide_object(each, with_old_node()).refusals) is refused


@pytest.mark.parametrize(("count", "allowed"), [("16", True), ("17", False)])
def test_a_pod_that_reaches_only_device_plugins_is_judged_by_them(count, allowed):
    mixed = with_old_node()
    asked = gpu_pod(limits={"nvidia.com/gpu": count})
    asked["spec"]["nodeSelector"] = {"of": "old"}
    assert answer(given(asked, mixed))["allowed"] is allowed
    assert bool(decide_object(asked, mixed).refusals) is not allowed


def _slice_of(node):
    spec = msgspec.structs.replace(SLICE.spec, node_name=node, pool=msgspec.structs.replace(SLICE.spec.pool, name=node))
    metadata = msgspec.structs.replace(SLICE.metadata, name=f"s-{node}")
    return msgspec.structs.replace(SLICE, metadata=metadata, spec=spec)


def workload_of(obj, world):
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j"},
        "spec": {"template": {"metadata": {}, "spec": obj["spec"]}},
    }
    return admission.validate(review(job, resource="jobs", group="batch"), world)


# Nodes that a pod can run on


def _slice_with(count, name):
    spec = msgspec.structs.replace(_slice_of(name).spec, devices=SLICE.spec.devices[:count])
    return msgspec.structs.replace(_slice_of(name), spec=spec)


def sized(*, plugins=0, **fields):
    """A node of two GPUs, one of four, one whose driver has published nothing yet, and one that may have `plugins` GPUs by a device plugin."""
    named = {
        name: wire.convert({"metadata": {"name": name, "labels": {"of": name}}}, Node)
        for name in ("small", "large", "bare")
    }
    if plugins:
        amounts = {"allocatable": {"nvidia.com/gpu": str(plugins)}}
        named["old"] = wire.convert({"metadata": {"name": "old", "labels": {"of": "old"}}, "status": amounts}, Node)
    slices = [_slice_with(2, "small"), _slice_with(4, "large")]
    configuration = configured(mode="enforce", **fields)
    fleet = Inventory.gather([CLASS], slices, named.values())
    stock = Stock.of(slices=slices, classes=[CLASS], nodes=named.values())
    coming = prospects(configuration.file.node_templates, stock)
    return msgspec.structs.replace(ENFORCE, configuration=configuration, fleet=fleet, stock=stock, prospects=coming)


def confined(count, *nodes, by="selector", **metadata):
    asked = gpu_pod(limits={"nvidia.com/gpu": str(count)}, **metadata)
    if by == "selector":
        asked["spec"]["nodeSelector"] = {"of": nodes[0]}
        return asked
    place = {"key": "of", "operator": "In", "values": list(nodes)}
    terms = [{"matchExpressions": [place]}]
    if by == "name":
        terms = [{"matchFields": [{**place, "key": "metadata.name"}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    asked["spec"]["affinity"] = {"nodeAffinity": required}
    return asked


def everywhere(asked, world):
    """The webhook's answer, after a check that files get the same."""
    there, here = answer(given(asked, world)), decide_object(asked, world)
    assert there["allowed"] is not bool(here.refusals)
    said = there.get("status", {}).get("message", "").partition("; to bypass")[0]
    assert said == "; ".join(map(str, here.refusals))
    for told in there.get("warnings", ()):
        assert any(warning.startswith(told.partition("…")[0]) for warning in here.warnings)
    return there


@pytest.mark.parametrize("by", ["selector", "affinity", "name"])
def test_a_pod_reaching_only_impossible_nodes_is_refused(by):
    message = everywhere(confined(3, "small", by=by), sized())["status"]["message"]
    opening = "the only node that this pod can run on could not serve it even if idle; nearest is small: "
    assert message.startswith(opening)
    assert (
        "node large, where the pod cannot run, could (it would fit if container main asked for no more than 2"
        in message
    )
    assert "[R020]" in message
    assert everywhere(confined(2, "small", by=by), sized()).get("warnings", []) == []
    assert everywhere(confined(4, "large", by=by), sized()).get("warnings", []) == []
    assert "[R023]" in everywhere(confined(5, "small", by=by), sized())["status"]["message"]


def test_a_node_without_devices_does_not_prevent_refusal():
    message = everywhere(confined(3, "small", "bare", by="affinity"), sized())["status"]["message"]
    assert message.startswith("none of 2 nodes that this pod can run on could serve it even if idle; nearest is small")


@pytest.mark.parametrize("by", ["selector", "affinity"])
def test_a_pod_waits_where_its_driver_may_be_starting(by):
    there = everywhere(confined(3, "bare", by=by), sized())
    assert there["allowed"]
    [told] = there["warnings"]
    opening = (
        "the pod waits until a node publishes such devices: the only node that this pod can run on could not serve it"
    )
    assert told.startswith(opening)
    assert "asks for class gpu.nvidia.com, and no such node has a whole GPU; node large" in told
    [doubt] = decide_object(confined(3, "bare", by=by), sized()).decisions
    assert (doubt.code, doubt.remedy) == (
        "R020",
        "correct its node selector or affinity, or request what these nodes have",
    )


def test_beside_device_plugins_a_pod_is_left_unless_its_driver_may_be_starting():
    mixed = sized(plugins=8)
    for count, node, moves in ((3, "small", False), (3, "bare", True), (2, "small", True)):
        there = everywhere(confined(count, node), mixed)
        assert (there["allowed"], "patch" in there) == (True, moves)
        assert bool(there.get("warnings")) is (count == 3)


def test_a_pod_that_reaches_no_node_waits_for_one():
    assert everywhere(confined(3, "elsewhere"), sized())["allowed"]


@pytest.mark.parametrize(("count", "allowed"), [(4, True), (16, False)])
def test_a_declared_node_that_the_pod_can_reach_counts(count, allowed):
    devices = [{"driver": GPU, "count": 4, "attributes": {"type": {"string": "gpu"}}}]
    world = sized(nodeTemplates=[{"name": "t", "labels": {"of": "small"}, "devices": devices}])
    assert everywhere(confined(count, "small"), world)["allowed"] is allowed
    elsewhere = sized(nodeTemplates=[{"name": "t", "labels": {"of": "other"}, "devices": devices}])
    assert not everywhere(confined(count, "small"), elsewhere)["allowed"]


def test_a_daemon_set_runs_where_possible():
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u", "controller": True}
    asked = confined(3, "small", by="name", ownerReferences=[owner])
    told = answer(given(asked, sized()))
    assert told["allowed"]
    assert [one.startswith("its pods for such nodes wait: ") for one in told["warnings"]] == [True]
    template = {"metadata": {}, "spec": confined(3, "small")["spec"]}
    each = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "d"}, "spec": {"template": template}}
    found = decide_object(each, sized())
    assert (found.refusals, [decision.code for decision in found.decisions]) == ((), ["R020"])


def test_a_device_plugin_daemon_set_runs_where_possible():
    mixed = with_old_node()
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u", "controller": True}
    small = wire.convert({"metadata": {"name": "less"}, "status": {"allocatable": {"rdma/hca": "1"}}}, Node)
    large = wire.convert({"metadata": {"name": "more"}, "status": {"allocatable": {"rdma/hca": "2"}}}, Node)
    fleet = Inventory.gather([CLASS], [SLICE], [NODE, small, large])
    world = msgspec.structs.replace(mixed, fleet=fleet, stock=STOCK.with_all([small, large]))
    asked = confined(1, "less", by="name")
    asked["spec"]["containers"][0]["resources"]["limits"] = {"rdma/hca": "2"}
    assert not answer(given(asked, world))["allowed"]
    asked["metadata"]["ownerReferences"] = [owner]
    assert answer(given(asked, world))["allowed"]


@pytest.mark.parametrize("prefer", ["plugin", "dra"])
def test_a_daemon_set_of_a_mixed_fleet_runs_where_possible(prefer):
    """Also where the pod's nodes have device plugins, so that it gets no claim."""
    mixed = sized(plugins=2, mixed={"nvidia.com/gpu": {"prefer": prefer}})
    more = {"metadata": {"name": "more"}, "status": {"allocatable": {"nvidia.com/gpu": "8"}}}
    nodes = [*mixed.stock.nodes.values(), wire.convert(more, Node)]
    fleet = Inventory.gather([CLASS], [_slice_with(2, "small"), _slice_with(4, "large")], nodes)
    world = msgspec.structs.replace(mixed, fleet=fleet, stock=mixed.stock.with_all(nodes))
    assert not answer(given(confined(3, "old"), world))["allowed"]
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u", "controller": True}
    assert answer(given(confined(3, "old", ownerReferences=[owner]), world))["allowed"]


def test_a_warned_pod_keeps_its_namespace_and_controller():
    """Else the webhook would not wait for the template of a workload's pod that is warned of."""
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": True}
    outcome = given(confined(3, "bare", ownerReferences=[owner]), sized())
    assert answer(outcome)["warnings"]
    assert (outcome.record.outcome, outcome.namespace, outcome.controller) == ("translated", "ns", "Job")


def test_a_job_is_told_that_reachable_nodes_are_too_small():
    [told] = answer(workload_of(confined(3, "small"), sized()))["warnings"]
    assert told.startswith("its pods will be refused: the only node that this pod can run on")
