"""The guard decides on the node whether a claim may be prepared.

No two claims get one device, no shares exceed a device, and no incompatible devices are used together.
"""

import pytest
from msgspec.structs import replace

from dra.objects import DeviceCompatibility
from dra.policy import Rules
from dra.wire import convert
from node.checkpoint import Prepared
from node.guard import Guard, GuardRefusal
from node.messages import ClaimReference, PluginDevice
from node.plugins import FactSources, PluginState, machine_of_plugins
from tests.node.machines import DRIVER, LAYOUT, NODE, claim, gpu, machine, reference, result, shared_gpu

MACHINE = machine(
    layouts=[LAYOUT],
    gpus=[shared_gpu(0, layout="small"), gpu(1), gpu(2)],
    numaNodes=[{"number": 0, "cpus": "0-7"}],
)


def guard(node_machine=MACHINE, rules=None):
    return Guard(node_machine, NODE, rules)


def prepare_all(*claims, by=None):
    """Prepare these claims one after the other with the guard `by`; return the records of the prepared claims."""
    used_guard = by or guard()
    records = {}
    for unprepared in claims:
        record = used_guard.check_claim(unprepared, reference(unprepared.metadata.name), records)
        assert isinstance(record, Prepared), record
        records[record.uid] = record
    return records


def refusal_of(refused_claim, records=None, by=None, claim_reference=None):
    """Return why the guard `by` refuses a claim while the claims with these `records` are prepared."""
    answer = (by or guard()).check_claim(
        refused_claim, claim_reference or reference(refused_claim.metadata.name), records or {}
    )
    assert isinstance(answer, GuardRefusal), answer
    return answer


def share(memory, cores=10, number=0, **result_fields):
    """Return an allocation result for a share of the GPU with this number: `memory` in GiB, `cores` in percent."""
    return result(
        f"gpu-{number}-shared",
        share=result_fields.pop("share", "s1"),
        memory=f"{memory}Gi",
        cores=str(cores),
        **result_fields,
    )


def test_a_claim_gets_the_devices_in_its_status():
    record = guard().check_claim(claim("a", result("gpu-1"), result("gpu-2", "q/alternative")), reference("a"), {})
    assert (record.uid, record.namespace, record.name, record.pool) == ("uid-a", "ns", "a", NODE)
    assert [(device.request, device.device) for device in record.devices] == [
        ("r", "gpu-1"),
        ("q/alternative", "gpu-2"),
    ]


def changed_result(**changed):
    return result("gpu-1") | changed


REFUSED_CLAIMS = {
    "NotAllocated": claim("a", allocated=False),
    "NotRequested": claim("a", changed_result(adminAccess=True)),
    "NotReserved": claim("a", result("gpu-1"), reserved=False),
    "NotOurs": claim("a", changed_result(driver="another.example.com")),
    "AnotherNode": claim("a", changed_result(pool="node-2")),
    "UnknownDevice": claim("a", changed_result(device="gpu-9")),
    "NotShared": claim("a", result("gpu-1", share="s", memory="1Gi")),
    "Taken": claim("a", result("gpu-1"), result("gpu-1", "q")),
    "NotAShare": claim("a", result("gpu-0-shared", share="s", memory="1Gi")),
    "Overlap": claim("a", result("gpu-0-2g-0"), result("gpu-0-1g-1", "q")),
    "Exceeded": claim("a", share(30), share(20, request="q", share="s2")),
}


@pytest.mark.parametrize("reason", REFUSED_CLAIMS)
def test_a_claim_that_must_not_be_prepared_is_refused(reason):
    assert refusal_of(REFUSED_CLAIMS[reason]).reason == reason


def test_a_result_for_an_unknown_request_is_refused():
    odd_claim = convert(
        {"metadata": {"name": "a", "namespace": "ns", "uid": "uid-a"}, "status": {
            "allocation": {"devices": {"results": [{**result("gpu-1"), "request": "strange"}]}},
            "reservedFor": [{"resource": "pods", "name": "p", "uid": "x"}],
        }},
        type(claim("a")),
    )  # fmt: skip
    assert refusal_of(odd_claim).reason == "UnknownRequest"


def test_a_claim_with_another_uid_than_its_reference_is_refused():
    old_reference = ClaimReference(namespace="ns", name="a", uid="uid-old")
    assert refusal_of(claim("a", result("gpu-1")), claim_reference=old_reference).reason == "AnotherClaim"


@pytest.mark.parametrize("uid", ["", "../../x", "a/b", "a" * 64, "-x"])
def test_a_claim_with_an_unsafe_uid_is_refused(uid):
    """The uid becomes part of a file name."""
    unsafe_claim = claim("a", result("gpu-1"))
    unsafe_claim = replace(unsafe_claim, metadata=replace(unsafe_claim.metadata, uid=uid))
    assert refusal_of(unsafe_claim, claim_reference=ClaimReference(uid=uid)).reason == "AnotherClaim"


def test_a_refusal_of_a_prepared_device_names_its_claim():
    answer = refusal_of(claim("b", result("gpu-1")), prepare_all(claim("a", result("gpu-1"))))
    assert answer == GuardRefusal("Taken", "gpu-1 is prepared for ns/a")


def test_a_prepared_claim_keeps_its_devices_when_the_machine_changes():
    first = claim("a", result("gpu-1"))
    records = prepare_all(first)
    guard_of_smaller_machine = guard(machine(gpus=[gpu(1)]))
    assert guard_of_smaller_machine.check_claim(first, reference("a"), records) == records["uid-a"]


def test_a_prepared_claim_with_other_devices_is_refused():
    records = prepare_all(claim("a", result("gpu-1")))
    assert refusal_of(claim("a", result("gpu-2")), records).reason == "Changed"


def test_shares_never_exceed_the_device():
    records = prepare_all(claim("a", share(10, 30)), claim("b", share(30, 30)))
    answer = refusal_of(claim("c", share(1, 30)), records)
    assert answer.reason == "Exceeded"
    assert "but beside ns/a, ns/b only 0 of 40Gi are left" in answer.message
    assert refusal_of(claim("c", share(1, 50)), prepare_all(claim("a", share(1, 60)))).reason == "Exceeded"


@pytest.mark.parametrize(
    "share_result", [result("gpu-0-shared", share="s", memory="1500Mi", cores="1"), share(0), share(1, 101)]
)
def test_a_share_that_the_policy_does_not_offer_is_refused(share_result):
    assert refusal_of(claim("a", share_result)).reason == "NotAShare"


def test_a_shared_device_is_refused_without_a_share():
    assert refusal_of(claim("a", result("gpu-0-shared"))).reason == "NotShared"


def test_a_device_held_whole_stays_taken_after_becoming_shared():
    """The inventory may change while claims are prepared."""
    exclusive = machine(gpus=[gpu(0, name="gpu-0-shared")])
    records = prepare_all(claim("a", result("gpu-0-shared")), by=guard(exclusive))
    assert refusal_of(claim("b", share(1)), records) == GuardRefusal(
        "Taken", "gpu-0-shared is prepared as a whole for ns/a"
    )


def test_admin_access_works_on_held_devices_and_holds_none():
    records = prepare_all(claim("a", result("gpu-1")), claim("admin", changed_result(adminAccess=True), admin=True))
    assert refusal_of(claim("c", result("gpu-1")), records).reason == "Taken"
    only_admin = prepare_all(claim("admin", changed_result(adminAccess=True), admin=True))
    assert isinstance(guard().check_claim(claim("c", result("gpu-1")), reference("c"), only_admin), Prepared)


@pytest.mark.parametrize(("first", "second"), [
    ("gpu-0", "gpu-0-1g-0"), ("gpu-0-1g-0", "gpu-0"), ("gpu-0-2g-0", "gpu-0-1g-1"), ("gpu-0-2g-0", "gpu-0-2g-2"),
])  # fmt: skip
def test_overlapping_devices_are_not_prepared_together(first, second):
    assert refusal_of(claim("b", result(second)), prepare_all(claim("a", result(first)))).reason == "Overlap"


def test_partitions_that_do_not_overlap_are_prepared_together():
    assert len(prepare_all(claim("a", result("gpu-0-1g-0")), claim("b", result("gpu-0-2g-2")))) == 2


def test_shares_of_a_device_consume_its_counters_once():
    assert len(prepare_all(claim("a", share(1)), claim("b", share(1)))) == 2
    assert refusal_of(claim("c", result("gpu-0-1g-0")), prepare_all(claim("a", share(1)))).reason == "Overlap"


def machine_with_groups():
    partitions = [partition | {"groups": ["mig"]} for partition in LAYOUT["partitions"]]
    partitions[1] |= {"groups": ["mps"]}
    return machine(layouts=[LAYOUT | {"partitions": partitions}], gpus=[gpu(layout="small")])


def test_devices_without_a_common_group_are_not_prepared_together():
    group_guard = guard(machine_with_groups())
    records = prepare_all(claim("a", result("gpu-0-1g-0")), by=group_guard)
    assert refusal_of(claim("b", result("gpu-0-2g-2")), records, by=group_guard).reason == "Incompatible"
    assert len(prepare_all(claim("a", result("gpu-0-1g-0")), claim("b", result("gpu-0-1g-1")), by=group_guard)) == 2


def rules(expression, scope="pool"):
    spec = {"driver": "devices.example.com", "compatibleOnlyWith": expression, "scope": scope}
    return Rules([convert({"metadata": {"name": "r"}, "spec": spec}, DeviceCompatibility)])


@pytest.mark.parametrize("scope", ["pool", "node"])
def test_a_compatibility_rule_applies_to_prepared_devices(scope):
    strict = guard(rules=rules("false", scope))
    records = prepare_all(claim("a", result("gpu-1")), by=strict)
    answer = refusal_of(claim("b", result("gpu-2")), records, by=strict)
    assert answer == GuardRefusal("Incompatible", "gpu-2 must not be used together with gpu-1, which ns/a has")
    strict.use_rules(Rules())
    assert isinstance(strict.check_claim(claim("b", result("gpu-2")), reference("b"), records), Prepared)


def test_every_claim_gets_its_own_cpus():
    records = prepare_all(
        claim("a", result("cpus-numa-0", share="s1", cpus="3")),
        claim("b", result("cpus-numa-0", share="s2", cpus="2"), result("cpus-numa-0", "q", share="s3", cpus="1")),
    )
    assert [device.cpus for record in records.values() for device in record.devices] == ["0-2", "3-4", "5"]
    held_by_b = {uid: record for uid, record in records.items() if uid != "uid-a"}
    record_of_c = guard().check_claim(
        claim("c", result("cpus-numa-0", share="s4", cpus="4")), reference("c"), held_by_b
    )
    assert record_of_c.devices[0].cpus == "0-2,6"


NIC = {"name": "nic", "interface": "e0", "place": {"pciBusId": "0000:3c:00.0"}}
FUNCTIONS = [
    {"name": f"vf-{number}", "interface": f"e0v{number}", "place": {"pciBusId": f"0000:3c:00.{number}"}}
    for number in (2, 3)
]
ADDRESS = {"pciBusId": "0000:3b:00.0"}
# By change of the inventory: the machine before, the device that claim a has then, the machine after, and a device on the same hardware.
CHANGES = {
    "other names": (machine(gpus=[gpu(0)]), "gpu-0", machine(gpus=[gpu(0, name="x")]), result("x")),
    "whole to partitions": (
        machine(gpus=[gpu(0)]),
        "gpu-0",
        machine(layouts=[LAYOUT], gpus=[gpu(0, layout="small", whole=False)]),
        result("gpu-0-1g-2"),
    ),
    "whole to shares": (machine(gpus=[gpu(0)]), "gpu-0", machine(gpus=[shared_gpu(0, whole=False)]), share(1)),
    "partition to whole": (
        machine(layouts=[LAYOUT], gpus=[gpu(0, layout="small", whole=False)]),
        "gpu-0-1g-2",
        machine(gpus=[gpu(0)]),
        result("gpu-0"),
    ),
    "partitions with other names": (
        machine(layouts=[LAYOUT], gpus=[gpu(0, layout="small")]),
        "gpu-0-1g-0",
        machine(layouts=[LAYOUT], gpus=[gpu(0, name="x", layout="small")]),
        result("x-1g-0"),
    ),
    "larger partitions of the same name": (
        machine(layouts=[LAYOUT], gpus=[gpu(0, layout="small")]),
        "gpu-0-2g-0",
        machine(
            layouts=[LAYOUT | {"partitions": [p | {"slices": 1, "compute": 1} for p in LAYOUT["partitions"]]}],
            gpus=[gpu(0, layout="small")],
        ),
        result("gpu-0-1g-1"),
    ),
    "swapped UUIDs": (
        machine(gpus=[gpu(0), gpu(1)]),
        "gpu-0",
        machine(gpus=[gpu(0, uuid="GPU-1"), gpu(1, uuid="GPU-0")]),
        result("gpu-1"),
    ),
    "another UUID at the same address": (
        machine(gpus=[gpu(0, place=ADDRESS)]),
        "gpu-0",
        machine(gpus=[gpu(7, place=ADDRESS)]),
        result("gpu-7"),
    ),
    "a renamed network card": (machine(nics=[NIC]), "nic", machine(nics=[NIC | {"name": "x"}]), result("x")),
    "a virtual function to its card": (
        machine(nics=[NIC | {"virtualFunctions": FUNCTIONS}]),
        "vf-2",
        machine(nics=[NIC | {"name": "x"}]),
        result("x"),
    ),
    "a card to its virtual functions": (
        machine(nics=[NIC]),
        "nic",
        machine(nics=[NIC | {"name": "x", "virtualFunctions": FUNCTIONS}]),
        result("vf-3"),
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_hardware_of_a_prepared_device_stays_taken_when_the_inventory_changes(change):
    before, device, after, wanted = CHANGES[change]
    held = share(1) if device.endswith("-shared") else result(device)
    records = prepare_all(claim("a", held), by=guard(before))
    answer = refusal_of(claim("b", wanted), records, by=guard(after))
    assert answer.reason == "Taken"
    assert f"prepared for ns/a as {device}" in answer.message
    assert wanted["device"] in guard(after).withheld(records.values())
    assert isinstance(guard(after).check_claim(claim("b", wanted), reference("b"), {}), Prepared)


def test_other_hardware_stays_free_when_the_inventory_changes():
    """The second virtual function of a renamed card, and another GPU."""
    before = machine(gpus=[gpu(0), gpu(1)], nics=[NIC | {"virtualFunctions": FUNCTIONS}])
    functions = [function | {"name": f"x-{function['name']}"} for function in FUNCTIONS]
    after = machine(
        gpus=[gpu(0, name="x0"), gpu(1, name="x1")], nics=[NIC | {"name": "x", "virtualFunctions": functions}]
    )
    records = prepare_all(claim("a", result("gpu-0"), result("vf-2", "net")), by=guard(before))
    assert set(guard(after).withheld(records.values())) == {"x0", "x", "x-vf-2"}
    free = claim("b", result("x1"), result("x-vf-3", "net"))
    assert isinstance(guard(after).check_claim(free, reference("b"), records), Prepared)


def test_a_device_that_is_offered_as_it_was_withholds_nothing():
    """Its name and its counters hold it: more uses of the card, more attributes and another list of files change nothing."""
    records = prepare_all(claim("a", share(1)), by=guard(machine(gpus=[shared_gpu(0, whole=False)])))
    after = guard(machine(layouts=[LAYOUT], gpus=[shared_gpu(0, layout="small", product="A", place=ADDRESS)]))
    assert after.withheld(records.values()) == {}
    assert refusal_of(claim("b", result("gpu-0")), records, by=after).reason == "Overlap"
    assert isinstance(after.check_claim(claim("b", share(1)), reference("b"), records), Prepared)


def test_admin_access_and_a_deleted_device_withhold_nothing():
    records = prepare_all(claim("admin", changed_result(adminAccess=True), admin=True), claim("a", result("gpu-2")))
    after = guard(machine(gpus=[gpu(1, name="x")]))
    assert after.withheld(records.values()) == {}


def test_a_prepared_device_of_unknown_hardware_withholds_everything():
    """An earlier version of the driver recorded only names, and the inventory has no such name."""
    records = {
        uid: replace(record, devices=tuple(replace(device, given=None) for device in record.devices))
        for uid, record in prepare_all(claim("a", result("gpu-1"))).items()
    }
    after = guard(machine(gpus=[gpu(1, name="x"), gpu(2)]))
    assert set(after.withheld(records.values())) == {"x", "gpu-2"}
    answer = refusal_of(claim("b", result("gpu-2")), records, by=after)
    assert answer.reason == "Taken"
    assert answer.message.startswith("gpu-2 may have hardware that is prepared for ns/a as gpu-1")


def test_cpus_in_use_are_not_given_again_under_another_numa_node():
    before = guard(machine(numaNodes=[{"number": 0, "cpus": "0-3"}, {"number": 1, "cpus": "4-7"}]))
    after = guard(machine(numaNodes=[{"number": 0, "cpus": "4-7"}, {"number": 1, "cpus": "0-3"}]))
    records = prepare_all(claim("a", result("cpus-numa-0", share="s", cpus="3")), by=before)
    [device] = after.check_claim(
        claim("b", result("cpus-numa-1", share="t", cpus="1")), reference("b"), records
    ).devices
    assert device.cpus == "3"
    answer = refusal_of(claim("c", result("cpus-numa-1", share="u", cpus="2")), records, by=after)
    assert answer == GuardRefusal("Exceeded", "the claim consumes 2 CPUs of cpus-numa-1, but only 1 of them are free")


def plugin_guard(*ids):
    plugin = PluginState(
        resource="example.com/gpu", devices=tuple(PluginDevice(id=id_, health="Healthy") for id_ in ids)
    )
    return Guard(machine_of_plugins(DRIVER, [plugin], FactSources()), NODE)


CARD = "GPU-fef8089b-4820-abfc-e83e-94318197576e"


def test_a_card_that_becomes_replicas_stays_taken():
    whole, replicas = plugin_guard(CARD), plugin_guard(f"{CARD}::0", f"{CARD}::1")
    [name], names = ([device.name for device in used.machine.devices] for used in (whole, replicas))
    records = prepare_all(claim("a", result(name)), by=whole)
    assert set(replicas.withheld(records.values())) == set(names)
    assert refusal_of(claim("b", result(names[0])), records, by=replicas).reason == "Taken"


def test_replicas_stay_free_when_the_plugin_offers_fewer():
    many, few = plugin_guard(f"{CARD}::0", f"{CARD}::1"), plugin_guard(f"{CARD}::0")
    records = prepare_all(claim("a", result(many.machine.devices[1].name)), by=many)
    free = claim("b", result(few.machine.devices[0].name))
    assert isinstance(few.check_claim(free, reference("b"), records), Prepared)
