"""The kubelet's state file, names of CDI files, and the encoding of the kubelet's answer."""

import json

import pytest

from node.audit import UnreadableState, read_state
from node.audit.findings import claim_uid
from node.messages import PodHoldings, decode, encode
from tests.node.audit.snapshots import UID, claim_holding, device, plugin_holding


def state_file(content):
    return json.dumps({"Data": json.dumps(content), "Checksum": 1}).encode()


def state(**driver_state):
    claim = {"ClaimUID": UID, "ClaimName": "c", "Namespace": "ns", "PodUIDs": {"p": {}}, "DriverState": driver_state}
    return {"kind": "DRACheckpoint", "apiVersion": "checkpoint.dra.kubelet.k8s.io/v1", "ClaimInfoStateList": [claim]}


def test_the_kubelets_state_file_is_read():
    devices = [{"PoolName": "pool", "DeviceName": "gpu-0", "ShareID": "s", "RequestNames": ["r"], "CDIDeviceIDs": None}]
    [record] = read_state(state_file(state(**{"a.example.com": {"Devices": devices}})))
    assert (record.namespace, record.claim, record.uid, record.share) == ("ns", "c", UID, "s")
    assert record.device_id == device("gpu-0", "a.example.com", "pool")


@pytest.mark.parametrize("content", [state(), state(a={"Devices": None}), {"ClaimInfoStateList": None}, {}])
def test_a_state_file_without_claims_is_empty(content):
    assert read_state(state_file(content)) == ()


@pytest.mark.parametrize(
    "data",
    [b"", b"{}", b"[]", b"\xff", state_file([]), state_file({"ClaimInfoStateList": 1}), b"[" * 100_000],
)  # fmt: skip
def test_a_state_file_not_written_by_the_kubelet_is_unreadable(data):
    with pytest.raises(UnreadableState):
        read_state(data)


@pytest.mark.parametrize(
    "name",
    [f"drawbridge_a.example.com_{UID}.json", f"a.example.com-{UID}.yaml", f"k8s.a.example.com-claim_{UID}.json"],
)
def test_a_cdi_file_name_contains_the_uid_of_its_claim(name):
    assert claim_uid(name, {"a.example.com"}) == UID


@pytest.mark.parametrize(
    "name",
    [
        f"a.example.com_{UID}.json.new",
        f"b.example.com_{UID}.json",
        f"a.example.com_{UID}_{UID}.json",
        f"a.example.com_{UID}0.json",
        "a.example.com.json",
        "",
    ],
)
def test_other_file_names_contain_no_uid_of_a_claim(name):
    assert claim_uid(name, {"a.example.com"}) == ""


def test_the_kubelets_answer_survives_encoding_and_other_fields_are_skipped():
    answer = PodHoldings(pods=(plugin_holding("old", "GPU-0", "GPU-1"), claim_holding("new", "c", "gpu-0")))
    assert decode(encode(answer), PodHoldings) == answer
    container = encode(answer.pods[0].containers[0]) + bytes([3 << 3 | 2, 3, 1, 0x80, 1])  # CPUs, packed
    pod = bytes([3 << 3 | 2, len(container)]) + container
    [decoded_pod] = decode(bytes([1 << 3 | 2, len(pod)]) + pod, PodHoldings).pods
    assert decoded_pod.containers == answer.pods[0].containers
