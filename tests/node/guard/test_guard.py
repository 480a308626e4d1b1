"""The guard: no device for two claims, no share beyond the device, and no incompatible devices together."""

import msgspec
import pytest
from msgspec.structs import replace

from dra.objects import DeviceCompatibility
from dra.policy import Rules
from dra.wire import convert
from node.checkpoint import Prepared
from node.guard import Guard, GuardRefusal
from node.messages import ClaimReference
from tests.node.machines import LAYOUT, NODE, claim, gpu, machine, reference, result, shared_gpu

ALL = machine(
    layouts=[LAYOUT],
    gpus=[shared_gpu(0, layout="small"), gpu(1), gpu(2)],
    numaNodes=[{"number": 0, "cpus": "0-7"}],
)


def guard(made=ALL, rules=None):
    return Guard(made, NODE, rules)


def after(*claims, by=None):
    """Return the prepared claims after preparing these claims one after the other."""
    judge = by or guard()
    held = {}
    for prepared in claims:
        record = judge.judge(prepared, reference(prepared.metadata.name), held)
        assert isinstance(record, Prepared), record
        held[record.uid] = record
    return held


def refused(claim, held=None, by=None, ref=None):
    answer = (by or guard()).judge(claim, ref or reference(claim.metadata.name), held or {})
    assert isinstance(answer, GuardRefusal), answer
    return answer


def share(memory, cores=10, number=0, **more):
    return result(f"gpu-{number}-shared", share=more.pop("share", "s1"), memory=f"{memory}Gi", cores=str(cores), **more)


def test_a_claim_gets_what_its_status_says():
    record = guard().judge(claim("a", result("gpu-1"), result("gpu-2", "q/alternative")), reference("a"), {})
    assert (record.uid, record.namespace, record.name, record.pool) == ("uid-a", "ns", "a", NODE)
    assert [(device.request, device.device) for device in record.devices] == [
        ("r", "gpu-1"),
        ("q/alternative", "gpu-2"),
    ]


def foreign(**changed):
    return result("gpu-1") | changed


CONTRADICTIONS = {
    "NotAllocated": claim("a", allocated=False),
    "NotRequested": claim("a", foreign(adminAccess=True)),
    "NotReserved": claim("a", result("gpu-1"), reserved=False),
    "NotOurs": claim("a", foreign(driver="another.example.com")),
    "AnotherNode": claim("a", foreign(pool="node-2")),
    "UnknownDevice": claim("a", foreign(device="gpu-9")),
    "NotShared": claim("a", result("gpu-1", share="s", memory="1Gi")),
    "Taken": claim("a", result("gpu-1"), result("gpu-1", "q")),
    "NotAShare": claim("a", result("gpu-0-shared", share="s", memory="1Gi")),
    "Overlap": claim("a", result("gpu-0-2g-0"), result("gpu-0-1g-1", "q")),
    "Exceeded": claim("a", share(30), share(20, request="q", share="s2")),
}


@pytest.mark.parametrize("reason", CONTRADICTIONS)
def test_a_claim_that_contradicts_its_status_or_machine_is_refused(reason):
    assert refused(CONTRADICTIONS[reason]).reason == reason


def test_a_result_for_an_unknown_request_is_refused():
    made = claim("a", result("gpu-1"))
    plain = msgspec.to_builtins(made.status.allocation.devices.results[0]) | {"request": "strange"}
    odd = convert(
        {"metadata": {"name": "a", "namespace": "ns", "uid": "uid-a"}, "status": {
            "allocation": {"devices": {"results": [{**result("gpu-1"), "request": plain["request"]}]}},
            "reservedFor": [{"resource": "pods", "name": "p", "uid": "x"}],
        }},
        type(made),
    )  # fmt: skip
    assert refused(odd).reason == "UnknownRequest"


def test_a_claim_with_another_uid_is_another_claim():
    ref = ClaimReference(namespace="ns", name="a", uid="uid-old")
    assert refused(claim("a", result("gpu-1")), ref=ref).reason == "AnotherClaim"


@pytest.mark.parametrize("uid", ["", "../../x", "a/b", "a" * 64, "-x"])
def test_a_claim_with_an_unsafe_uid_is_refused(uid):
    """The uid becomes part of a file name."""
    odd = claim("a", result("gpu-1"))
    odd = replace(odd, metadata=replace(odd.metadata, uid=uid))
    assert refused(odd, ref=ClaimReference(uid=uid)).reason == "AnotherClaim"


def test_a_device_of_another_claim_is_refused_with_its_holder():
    answer = refused(claim("b", result("gpu-1")), after(claim("a", result("gpu-1"))))
    assert answer == GuardRefusal("Taken", "gpu-1 is prepared for ns/a")


def test_a_prepared_claim_keeps_its_devices_after_the_rules_change():
    first = claim("a", result("gpu-1"))
    held = after(first)
    fewer = guard(machine(gpus=[gpu(1)]))
    assert fewer.judge(first, reference("a"), held) == held["uid-a"]


def test_a_prepared_claim_with_other_devices_is_refused():
    held = after(claim("a", result("gpu-1")))
    assert refused(claim("a", result("gpu-2")), held).reason == "Changed"


def test_shares_never_exceed_the_device():
    held = after(claim("a", share(10, 30)), claim("b", share(30, 30)))
    answer = refused(claim("c", share(1, 30)), held)
    assert answer.reason == "Exceeded"
    assert "but beside ns/a, ns/b only 0 of 40Gi are left" in answer.message
    assert refused(claim("c", share(1, 50)), after(claim("a", share(1, 60)))).reason == "Exceeded"


@pytest.mark.parametrize(
    "odd", [result("gpu-0-shared", share="s", memory="1500Mi", cores="1"), share(0), share(1, 101)]
)
def test_a_share_that_the_policy_does_not_offer_is_refused(odd):
    assert refused(claim("a", odd)).reason == "NotAShare"


def test_a_shared_device_is_refused_without_a_share():
    assert refused(claim("a", result("gpu-0-shared"))).reason == "NotShared"


def test_a_device_held_whole_stays_taken_after_becoming_shared():
    """The inventory may change while claims are prepared."""
    exclusive = machine(gpus=[gpu(0, name="gpu-0-shared")])
    held = after(claim("a", result("gpu-0-shared")), by=guard(exclusive))
    assert refused(claim("b", share(1)), held) == GuardRefusal("Taken", "gpu-0-shared is prepared as a whole for ns/a")


def test_admin_access_works_on_held_devices_and_holds_none():
    held = after(claim("a", result("gpu-1")), claim("admin", foreign(adminAccess=True), admin=True))
    assert refused(claim("c", result("gpu-1")), held).reason == "Taken"
    only_admin = after(claim("admin", foreign(adminAccess=True), admin=True))
    assert isinstance(guard().judge(claim("c", result("gpu-1")), reference("c"), only_admin), Prepared)


@pytest.mark.parametrize(("first", "second"), [
    ("gpu-0", "gpu-0-1g-0"), ("gpu-0-1g-0", "gpu-0"), ("gpu-0-2g-0", "gpu-0-1g-1"), ("gpu-0-2g-0", "gpu-0-2g-2"),
])  # fmt: skip
def test_overlapping_devices_are_not_prepared_together(first, second):
    assert refused(claim("b", result(second)), after(claim("a", result(first)))).reason == "Overlap"


def test_partitions_that_do_not_overlap_are_prepared_together():
    assert len(after(claim("a", result("gpu-0-1g-0")), claim("b", result("gpu-0-2g-2")))) == 2


def test_shares_of_a_device_consume_its_counters_once():
    assert len(after(claim("a", share(1)), claim("b", share(1)))) == 2
    assert refused(claim("c", result("gpu-0-1g-0")), after(claim("a", share(1)))).reason == "Overlap"


def grouped():
    partitions = [partition | {"groups": ["mig"]} for partition in LAYOUT["partitions"]]
    partitions[1] |= {"groups": ["mps"]}
    return machine(layouts=[LAYOUT | {"partitions": partitions}], gpus=[gpu(layout="small")])


def test_devices_without_a_common_group_are_not_prepared_together():
    by = guard(grouped())
    held = after(claim("a", result("gpu-0-1g-0")), by=by)
    assert refused(claim("b", result("gpu-0-2g-2")), held, by=by).reason == "Incompatible"
    assert len(after(claim("a", result("gpu-0-1g-0")), claim("b", result("gpu-0-1g-1")), by=by)) == 2


def rules(expression, scope="pool"):
    spec = {"driver": "devices.example.com", "compatibleOnlyWith": expression, "scope": scope}
    return Rules([convert({"metadata": {"name": "r"}, "spec": spec}, DeviceCompatibility)])


@pytest.mark.parametrize("scope", ["pool", "node"])
def test_a_compatibility_rule_applies_to_prepared_devices(scope):
    strict = guard(rules=rules("false", scope))
    held = after(claim("a", result("gpu-1")), by=strict)
    answer = refused(claim("b", result("gpu-2")), held, by=strict)
    assert answer == GuardRefusal("Incompatible", "gpu-2 must not be used together with gpu-1, which ns/a has")
    strict.use_rules(Rules())
    assert isinstance(strict.judge(claim("b", result("gpu-2")), reference("b"), held), Prepared)


def test_every_claim_gets_its_own_cpus():
    held = after(
        claim("a", result("cpus-numa-0", share="s1", cpus="3")),
        claim("b", result("cpus-numa-0", share="s2", cpus="2"), result("cpus-numa-0", "q", share="s3", cpus="1")),
    )
    assert [device.cpus for record in held.values() for device in record.devices] == ["0-2", "3-4", "5"]
    freed = {uid: record for uid, record in held.items() if uid != "uid-a"}
    more = guard().judge(claim("c", result("cpus-numa-0", share="s4", cpus="4")), reference("c"), freed)
    assert more.devices[0].cpus == "0-2,6"
