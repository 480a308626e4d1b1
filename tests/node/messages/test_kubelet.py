"""Our messages have the numbers and types of the fields in the kubelet's own .proto files, and similar names."""

import re
from pathlib import Path

from node import messages
from node.messages import MessageField, Skipped
from tests.loops import every

ROOT = Path(__file__).parents[3]
PROTO_TEXT = Path(__file__).with_name("kubelet.proto").read_text(encoding="utf-8")
FIELD = re.compile(r"(?P<label>repeated |optional |)(?P<type>map<string, \w+>|\w+) (?P<name>\w+) = (?P<number>\d+);")
# Our names of messages, by package and by the kubelet's name. Messages of the kubelet without fields are `Empty`, and not listed here.
OUR_MESSAGES = {
    "pluginregistration/v1": {"PluginInfo": "PluginInfo", "RegistrationStatus": "RegistrationStatus"},
    "dra/v1": {
        "NodePrepareResourcesRequest": "PrepareRequest",
        "NodePrepareResourcesResponse": "PrepareResponse",
        "NodePrepareResourceResponse": "PreparedClaim",
        "Device": "PreparedDevice",
        "NodeUnprepareResourcesRequest": "PrepareRequest",
        "NodeUnprepareResourcesResponse": "UnprepareResponse",
        "NodeUnprepareResourceResponse": "UnpreparedClaim",
        "Claim": "ClaimReference",
    },
    "dra-health/v1": {
        "DeviceIdentifier": "DeviceIdentifier",
        "DeviceHealth": "DeviceHealth",
        "NodeWatchResourcesResponse": "HealthReport",
    },
    "deviceplugin/v1beta1": {
        "DevicePluginOptions": "PluginOptions",
        "RegisterRequest": "RegisterRequest",
        "ListAndWatchResponse": "PluginDevices",
        "TopologyInfo": "NumaNodes",
        "NUMANode": "NumaId",
        "Device": "PluginDevice",
        "PreStartContainerRequest": "DeviceIds",
        "PreferredAllocationRequest": "PreferenceRequest",
        "ContainerPreferredAllocationRequest": "ContainerPreferenceRequest",
        "PreferredAllocationResponse": "PreferenceResponse",
        "ContainerPreferredAllocationResponse": "DeviceIds",
        "AllocateRequest": "AllocateRequest",
        "ContainerAllocateRequest": "DeviceIds",
        "CDIDevice": "CdiName",
        "AllocateResponse": "AllocateResponse",
        "ContainerAllocateResponse": "Edits",
        "Mount": "PluginMount",
        "DeviceSpec": "PluginNode",
    },
    "podresources/v1": {
        "AllocatableResourcesResponse": "PluginsOffer",
        "ListPodResourcesResponse": "PodHoldings",
        "PodResources": "PodHolding",
        "ContainerResources": "ContainerHolding",
        "ContainerDevices": "PluginHolding",
        "DynamicResource": "ClaimHolding",
        "ClaimResource": "ClaimDevice",
    },
}
# Our names of fields, if the kubelet's name does not contain ours: for all messages, and for single messages.
OUR_FIELD_NAMES = {
    "request_names": "requests",
    "last_updated_time": "updated",
    "pre_start_required": "before_start",
    "get_preferred_allocation_available": "prefers",
    "ID": "id",
    "envs": "variables",
    "must_include_deviceIDs": "included",
    "pod_resources": "pods",
    "container_requests": "containers",
    "container_responses": "containers",
}
OUR_FIELD_NAMES_BY_MESSAGE = {
    "NUMANode": {"ID": "number"},
    "ContainerAllocateResponse": {"devices": "nodes"},
    "ContainerResources": {"dynamic_resources": "claims", "cpu_ids": "cpus"},
    "DynamicResource": {"claim_resources": "devices"},
}
# How many fields of the kubelet follow the last field that we declare.
UNREAD_FIELDS = {"PodResources": 2, "ContainerDevices": 1, "AllocatableResourcesResponse": 2}
INTEGERS = {"int32", "int64", "HealthStatus"}
KUBELET_MESSAGES = [(package, theirs) for package, pairs in OUR_MESSAGES.items() for theirs in pairs]


def fields_of(package, message):
    """Return the fields of a message of the kubelet."""
    section = re.search(rf"^package {re.escape(package)};\n(.*?)(?=^package|\Z)", PROTO_TEXT, re.DOTALL | re.MULTILINE)[
        1
    ]
    return list(FIELD.finditer(re.search(rf"^message {message} {{(.*?)}}$", section, re.DOTALL | re.MULTILINE)[1]))


def expected_fields(package, message):
    """Yield the fields that our message must have, each with its number, and check our names of the fields."""
    our_message = getattr(messages, OUR_MESSAGES[package][message])
    for field in fields_of(package, message):
        number = int(field["number"])
        if number > len(our_message.__struct_fields__):
            continue
        name = our_message.__struct_fields__[number - 1]
        if our_message.__struct_defaults__[number - 1] == Skipped():
            continue
        kind = field["type"].removeprefix("map<string, ").removesuffix(">")
        types = {"string": str, "bool": bool} | dict.fromkeys(INTEGERS, int)
        collection = "map" if "map<" in field["type"] else "list" if field["label"] == "repeated " else ""
        type_ = types.get(kind) or getattr(messages, OUR_MESSAGES[package][kind])
        our_name = OUR_FIELD_NAMES_BY_MESSAGE.get(message, {}).get(field["name"]) or OUR_FIELD_NAMES.get(field["name"])
        assert name == our_name if our_name else name.replace("_", "") in field["name"].lower().replace("_", "")
        yield number, MessageField(number, name, type_, collection, field["label"] == "optional ")


@every(("package", "message"), KUBELET_MESSAGES)
def test_a_message_has_the_fields_of_its_proto_file(package, message):
    assert messages._fields(getattr(messages, OUR_MESSAGES[package][message])) == dict(
        expected_fields(package, message)
    )


@every(("package", "message"), KUBELET_MESSAGES)
def test_every_unread_field_is_listed(package, message):
    last = max(int(field["number"]) for field in fields_of(package, message))
    assert last - len(getattr(messages, OUR_MESSAGES[package][message]).__struct_fields__) == UNREAD_FIELDS.get(
        message, 0
    )


def test_the_proto_files_match_the_kubelet_version_of_e2e():
    pins = (ROOT / "e2e" / "binaries" / "kubernetes" / "go.mod").read_text(encoding="utf-8")
    assert re.search(r"k8s\.io/kubelet v[\d.]+", PROTO_TEXT)[0] in pins


def test_every_message_class_is_in_a_proto_file():
    our_messages = {our_message for pairs in OUR_MESSAGES.values() for our_message in pairs.values()}
    subclasses = {class_.__name__ for class_ in messages.Message.__subclasses__()}
    assert subclasses - {"Empty", "Skipped"} == our_messages
