"""Metadata files: a container finds a file for each request of its claims. The path follows from the pod's manifest."""

import json

import pytest

from dra.wire import builtins, convert
from node.cdi import is_metadata_of, metadata_of, spec_of
from node.guard import Guard
from tests.node.machines import DRIVER, NODE, claim, gpu, machine, reference, result, shared_gpu

PLACE = {"pciBusId": "0000:3b:00.0", "pcieRoot": "pci0000:3a", "numaNode": 1}
MACHINE = machine(
    gpus=[gpu(0, place=PLACE), gpu(1), shared_gpu(2, whole=False)],
    nics=[{"name": "nic", "interface": "eth1", "rdmaDevice": "mlx5_0"}],
)
CLAIM_NAME_ANNOTATION = "resource.kubernetes.io/pod-claim-name"
CLAIMS_FOLDER = "/var/run/kubernetes.io/dra-device-attributes/resourceclaims"
TEMPLATES_FOLDER = "/var/run/kubernetes.io/dra-device-attributes/resourceclaimtemplates"


def prepared_claim(*results, pod_claim_name=""):
    item = builtins(claim("c", *results))
    if pod_claim_name:
        item["metadata"]["annotations"] = {CLAIM_NAME_ANNOTATION: pod_claim_name}
    return Guard(MACHINE, NODE).check_claim(convert(item, type(claim("c"))), reference("c"), {})


def metadata_files(record):
    """Return the objects of each file, by file name."""
    return {name: list(map(json.loads, text.splitlines())) for name, text in metadata_of(record, DRIVER).items()}


def mounts(record):
    """Return the mounts of each CDI device, in order."""
    spec = json.loads(spec_of(record, DRIVER, "/state/metadata"))
    return [device["containerEdits"].get("mounts", []) for device in spec["devices"]]


def test_metadata_has_every_version_and_the_newest_first():
    [(name, objects)] = metadata_files(prepared_claim(result("gpu-0"))).items()
    assert name == "uid-c_0.json"
    assert [obj.pop("apiVersion") for obj in objects] == [
        "metadata.resource.k8s.io/v1beta1",
        "metadata.resource.k8s.io/v1alpha1",
    ]
    assert objects[0] == objects[1]
    assert objects[0] == {
        "kind": "DeviceMetadata",
        "metadata": {"name": "c", "namespace": "ns", "uid": "uid-c", "generation": 1},
        "requests": [
            {
                "name": "r",
                "devices": [
                    {
                        "driver": DRIVER,
                        "pool": NODE,
                        "name": "gpu-0",
                        "attributes": {
                            "type": {"string": "gpu"},
                            "uuid": {"string": "GPU-0"},
                            "resource.kubernetes.io/pciBusID": {"string": "0000:3b:00.0"},
                            "resource.kubernetes.io/pcieRoot": {"string": "pci0000:3a"},
                            "resource.kubernetes.io/numaNode": {"int": 1},
                        },
                    }
                ],
            }
        ],
    }


def test_each_request_has_a_file_mounted_by_its_first_device():
    record = prepared_claim(result("gpu-0", "gpus"), result("gpu-1", "gpus"), result("nic", "net/fast"))
    files = metadata_files(record)
    assert [[device["name"] for device in newest["requests"][0]["devices"]] for newest, _ in files.values()] == [
        ["gpu-0", "gpu-1"],
        ["nic"],
    ]
    network = files["uid-c_1.json"][0]["requests"][0]
    assert (network["name"], network["devices"][0]["networkData"]) == ("net/fast", {"interfaceName": "eth1"})
    [[first_mount], [], [second_mount]] = mounts(record)
    assert first_mount == {
        "hostPath": "/state/metadata/uid-c_0.json",
        "containerPath": f"{CLAIMS_FOLDER}/c/gpus/{DRIVER}-metadata.json",
        "options": ["ro", "nosuid", "nodev", "bind"],
    }
    assert second_mount["hostPath"] == "/state/metadata/uid-c_1.json"
    assert second_mount["containerPath"] == f"{CLAIMS_FOLDER}/c/net/{DRIVER}-metadata.json"


def test_a_device_with_two_shares_is_listed_once():
    record = prepared_claim(*(result("gpu-2-shared", share=share, memory="10Gi", cores="30") for share in "st"))
    [(newest, _)] = metadata_files(record).values()
    assert [device["name"] for device in newest["requests"][0]["devices"]] == ["gpu-2-shared"]


def test_the_path_for_a_template_has_the_pods_claim_name():
    record = prepared_claim(result("gpu-0"), pod_claim_name="accelerator")
    [(newest, _)] = metadata_files(record).values()
    assert newest["podClaimName"] == "accelerator"
    assert mounts(record)[0][0]["containerPath"] == f"{TEMPLATES_FOLDER}/accelerator/r/{DRIVER}-metadata.json"


@pytest.mark.parametrize("pod_claim_name", ["../../../../etc", "a/b", "..", "A", "a" * 64, "a\n"])
def test_an_unsafe_pod_claim_name_is_ignored(pod_claim_name):
    """Any user who may create claims can set the annotation, so it must not lead out of the folder."""
    record = prepared_claim(result("gpu-0"), pod_claim_name=pod_claim_name)
    assert mounts(record)[0][0]["containerPath"] == f"{CLAIMS_FOLDER}/c/r/{DRIVER}-metadata.json"
    assert "podClaimName" not in metadata_files(record)["uid-c_0.json"][0]


def test_only_complete_files_of_known_claims_are_metadata():
    assert is_metadata_of("uid-c_0.json", ["uid-c"])
    for name in ("uid-d_0.json", "uid-c_0.json.new", "uid-c", "_0.json"):
        assert not is_metadata_of(name, ["uid-c"])


@pytest.mark.oracle
@pytest.mark.live
def test_kubernetes_reader_accepts_every_version(metadata_oracle):
    """`metadata_oracle` is a program with Kubernetes' own reader of metadata files."""
    record = prepared_claim(
        result("gpu-0", "gpus"), result("gpu-1", "gpus"), result("nic", "net/fast"), pod_claim_name="accelerator"
    )
    texts = [text.decode() for text in metadata_of(record, DRIVER).values()]
    # The reader gets each file as it is, and then each line of the file, which is one version.
    [[first, *first_lines], [second, *second_lines]] = [
        metadata_oracle.ask_all([{"file": text}, *({"file": line} for line in text.splitlines())]) for text in texts
    ]
    assert first_lines == [first] * 2
    assert second_lines == [second] * 2
    assert first == {
        "claim": "ns/c",
        "podClaimName": "accelerator",
        "requests": {"gpus": ["gpu-0", "gpu-1"]},
        "attributeCounts": {"gpu-0": 5, "gpu-1": 2},
        "links": {},
    }
    assert (second["requests"], second["links"]) == ({"net/fast": ["nic"]}, {"nic": "eth1"})
    assert "invalid" not in second
