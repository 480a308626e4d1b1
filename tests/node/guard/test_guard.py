"""The guard: no device for two claims, no more of it than there is, nothing beside what must not be beside it."""

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
    """What is prepared after these claims were, one after the other."""
    judge = by or guard()
    held = {}
    for prepared in claims:
        record = judge.judge(prepared, reference(prepared.metadata.name), held)
        assert isinstance(record, Prepared), record
        held[record.uid] = record
    return held


def refused(asked, held=None, by=None, ref=None):
    answer = (by or guard()).judge(asked, ref or reference(asked.metadata.name), held or {})
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
def test_a_claim_that_contradicts_its_status_or_the_machine_is_refused(reason):
    assert refused(CONTRADICTIONS[reason]).reason == reason


def test_a_request_that_the_claim_has_not_is_refused():
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


def test_a_claim_of_the_same_name_and_another_uid_is_another_claim():
    ref = ClaimReference(namespace="ns", name="a", uid="uid-old")
    assert refused(claim("a", result("gpu-1")), ref=ref).reason == "AnotherClaim"


@pytest.mark.parametrize("uid", ["", "../../x", "a/b", "a" * 64, "-x"])
def test_a_uid_that_would_not_do_as_a_name_of_a_file_is_not_a_claim(uid):
    odd = claim("a", result("gpu-1"))
    odd = replace(odd, metadata=replace(odd.metadata, uid=uid))
    assert refused(odd, ref=ClaimReference(uid=uid)).reason == "AnotherClaim"


def test_a_device_of_another_claim_is_refused_and_its_holder_named():
    answer = refused(claim("b", result("gpu-1")), after(claim("a", result("gpu-1"))))
    assert answer == GuardRefusal("Taken", "gpu-1 is prepared for ns/a")


def test_the_same_claim_is_given_the_same_again_whatever_the_rules_say_now():
    first = claim("a", result("gpu-1"))
    held = after(first)
    fewer = guard(machine(gpus=[gpu(1)]))
    assert fewer.judge(first, reference("a"), held) == held["uid-a"]


def test_a_claim_whose_devices_changed_meanwhile_is_not_given_the_new_ones_beside_the_old():
    held = after(claim("a", result("gpu-1")))
    assert refused(claim("a", result("gpu-2")), held).reason == "Changed"


def test_shares_add_up_to_the_device_and_not_beyond():
    held = after(claim("a", share(10, 30)), claim("b", share(30, 30)))
    answer = refused(claim("c", share(1, 30)), held)
    assert answer.reason == "Exceeded"
    assert "of which 0 of 40Gi are left next to ns/a, ns/b" in answer.message
    assert refused(claim("c", share(1, 50)), after(claim("a", share(1, 60)))).reason == "Exceeded"


@pytest.mark.parametrize(
    "odd", [result("gpu-0-shared", share="s", memory="1500Mi", cores="1"), share(0), share(1, 101)]
)
def test_a_share_that_the_policy_does_not_offer_is_refused(odd):
    assert refused(claim("a", odd)).reason == "NotAShare"


def test_a_shared_device_is_not_given_whole():
    assert refused(claim("a", result("gpu-0-shared"))).reason == "NotShared"


def test_a_device_that_became_shared_while_a_claim_had_all_of_it_is_still_taken():
    """An inventory may change under prepared claims."""
    exclusive = machine(gpus=[gpu(0, name="gpu-0-shared")])
    held = after(claim("a", result("gpu-0-shared")), by=guard(exclusive))
    assert refused(claim("b", share(1)), held) == GuardRefusal("Taken", "gpu-0-shared is prepared as a whole for ns/a")


def test_admin_access_is_granted_on_a_held_device_and_holds_no_device():
    held = after(claim("a", result("gpu-1")), claim("admin", foreign(adminAccess=True), admin=True))
    assert refused(claim("c", result("gpu-1")), held).reason == "Taken"
    only_admin = after(claim("admin", foreign(adminAccess=True), admin=True))
    assert isinstance(guard().judge(claim("c", result("gpu-1")), reference("c"), only_admin), Prepared)


@pytest.mark.parametrize(("first", "second"), [
    ("gpu-0", "gpu-0-1g-0"), ("gpu-0-1g-0", "gpu-0"), ("gpu-0-2g-0", "gpu-0-1g-1"), ("gpu-0-2g-0", "gpu-0-2g-2"),
])  # fmt: skip
def test_devices_of_the_same_silicon_are_not_given_out_together(first, second):
    assert refused(claim("b", result(second)), after(claim("a", result(first)))).reason == "Overlap"


def test_partitions_that_fit_together_are():
    assert len(after(claim("a", result("gpu-0-1g-0")), claim("b", result("gpu-0-2g-2")))) == 2


def test_a_second_share_charges_no_second_time():
    assert len(after(claim("a", share(1)), claim("b", share(1)))) == 2
    assert refused(claim("c", result("gpu-0-1g-0")), after(claim("a", share(1)))).reason == "Overlap"


def grouped():
    partitions = [partition | {"groups": ["mig"]} for partition in LAYOUT["partitions"]]
    partitions[1] |= {"groups": ["mps"]}
    return machine(layouts=[LAYOUT | {"partitions": partitions}], gpus=[gpu(layout="small")])


def test_devices_without_a_group_in_common_are_not_given_out_together():
    by = guard(grouped())
    held = after(claim("a", result("gpu-0-1g-0")), by=by)
    assert refused(claim("b", result("gpu-0-2g-2")), held, by=by).reason == "Incompatible"
    assert len(after(claim("a", result("gpu-0-1g-0")), claim("b", result("gpu-0-1g-1")), by=by)) == 2


def rules(expression, scope="pool"):
    spec = {"driver": "devices.example.com", "compatibleOnlyWith": expression, "scope": scope}
    return Rules([convert({"metadata": {"name": "r"}, "spec": spec}, DeviceCompatibility)])


@pytest.mark.parametrize("scope", ["pool", "node"])
def test_a_declared_rule_about_devices_beside_each_other_is_kept(scope):
    strict = guard(rules=rules("false", scope))
    held = after(claim("a", result("gpu-1")), by=strict)
    answer = refused(claim("b", result("gpu-2")), held, by=strict)
    assert answer == GuardRefusal("Incompatible", "gpu-2 must not be used together with gpu-1, which ns/a has")
    strict.follow(Rules())
    assert isinstance(strict.judge(claim("b", result("gpu-2")), reference("b"), held), Prepared)


def test_every_claim_of_cpus_gets_its_own():
    held = after(
        claim("a", result("cpus-numa-0", share="s1", cpus="3")),
        claim("b", result("cpus-numa-0", share="s2", cpus="2"), result("cpus-numa-0", "q", share="s3", cpus="1")),
    )
    assert [device.cpus for record in held.values() for device in record.devices] == ["0-2", "3-4", "5"]
    freed = {uid: record for uid, record in held.items() if uid != "uid-a"}
    more = guard().judge(claim("c", result("cpus-numa-0", share="s4", cpus="4")), reference("c"), freed)
    assert more.devices[0].cpus == "0-2,6"
