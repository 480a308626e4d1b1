"""Single objects: wrong types, unknown fields, old versions and dropped fields, with remedies."""

import re
import tracemalloc
from pathlib import Path

import pytest

from dra import names
from dra.finding import Severity
from dra.objects import versions
from dra.validation import CODES
from dra.validation.fields import gates
from dra.validation.objects.judge import validate_object
from tests.dra.validation.manifests import claim, class_, codes, codes_and_paths, messages, request, slice_
from tests.loops import every
from tests.modules import PACKAGES

ROOT = Path(__file__).parents[3]


def test_every_code_is_used_and_every_used_code_is_known():
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py") if path.name != "codes.py"]
    used_codes = {code for path in files for code in re.findall(r'"([CDMORS]\d{3})"', path.read_text())}
    assert used_codes == set(CODES)


def test_errors_are_the_codes_of_what_the_api_server_refuses():
    assert all(code.severity is Severity.ERROR for name, code in CODES.items() if name.startswith("D1"))
    assert all(
        code.severity is not Severity.ERROR for name, code in CODES.items() if name[:2] in ("D3", "D4", "D5", "D6")
    )


@every(
    ("text", "words"),
    [
        (claim("    - {name: r, deviceClassName: gpu}"), "is under `exactly:`"),
        (claim(request(exactly="deviceClassname: gpu")), "did you mean deviceClassName?"),
        (claim(request(name="GPU_0")), "for example 'gpu-0'"),
        (claim(request(exactly="deviceClassName: gpu, count: '2'")), "remove the quotes"),
        (claim(request(exactly="deviceClassName: gpu, selectors: {}")), "put `- ` before"),
        (claim(request(), "    constraints: [{matchAttribute: numa}]"), "write <domain>/numa"),
        (slice_(devices="  - {name: a, capacity: {memory: 80Gi}}"), "write {value: 80Gi}"),
        (slice_(devices="  - {name: a, attributes: {model: x}}"), "{string: ...}"),
        (slice_(devices="  - {name: a, attributes: {driver: {version: v1.2.3}}}"), "leave the v out"),
        (slice_(devices="  - {name: a, basic: {}}"), "are fields of the device"),
        (slice_(devices="  - {name: a, compatibleOnlyWith: 'true'}"), "into a DeviceCompatibility"),
        (class_(spec="suitableNodes: {}"), "removed in Kubernetes 1.32"),
        (class_(spec="selectors: [{expression: 'true'}]"), "put it below `cel:`"),
        (claim("      []").replace("devices:", "resourceClassName: x\n  devices:"), "classic DRA"),
        (claim("      []").replace("resource.k8s.io/v1", "resource.k8s.io/v1beta1"), "below `exactly:`"),
        (claim("      []").replace("resource.k8s.io/v1", "resource.k8s.io/v1alpha3"), "apiVersion: resource.k8s.io/v1"),
        (claim("      []").replace("resource.k8s.io/v1", "resource.k8s.io/v1alpha2"), "classic DRA"),
        (slice_(devices="  - {name: a}").replace("resource.k8s.io/v1", "resource.k8s.io/v1beta1"), "`basic:`"),
    ],
)  # fmt: skip
def test_common_manifest_mistakes_are_answered_with_the_current_form(text, words):
    assert any(words in message for message in messages(text)), messages(text)


@pytest.mark.parametrize("version", ["v1alpha1", "v1alpha2", "v1"])
def test_a_kind_that_no_server_ever_served_is_not_of_classic_dra(version):
    text = f"apiVersion: resource.k8s.io/{version}\nkind: Gadget\nmetadata: {{name: g}}"
    assert codes(text) == {"D004"}
    assert any("no supported API server knows Gadget" in message for message in messages(text))


def test_fields_of_disabled_gates_are_dropped_with_a_warning():
    device = "  - {name: a, consumesCounters: [{counterSet: s, counters: {a: {value: 1}}, compatibilityGroups: [BAD, one, two]}]}"
    path = "/spec/devices/0/consumesCounters/0/compatibilityGroups"
    assert codes_and_paths(slice_(devices=device, count=2), enabled=gates.DEFAULT) >= {("D006", path)}
    assert ("D104", path) in codes_and_paths(slice_(devices=device, count=2), enabled=gates.ALL)


def test_findings_point_into_the_object_as_it_was_written():
    old = claim("    - {name: r, count: -1, deviceClassName: gpu}").replace("/v1", "/v1beta1")
    assert ("D108", "/spec/devices/requests/0/count") in codes_and_paths(old)
    old = slice_(devices="  - {name: a, basic: {capacity: {'bad name': {value: 1}}}}").replace("/v1", "/v1beta1")
    assert ("D102", "/spec/devices/0/basic/capacity/bad name") in codes_and_paths(old)


def test_a_namespace_on_a_cluster_object_is_mentioned():
    assert codes(class_().replace("{name: gpu}", "{name: gpu, namespace: x}")) == {"D009"}


def test_a_capacity_without_a_value_is_reported_as_zero():
    assert codes(slice_(devices="  - {name: a, capacity: {memory: {}}}")) == {"D007"}


@every("spec", [None, [], "x", 1, {"devices": None}, {"devices": []}, {"devices": {"requests": [None, 1]}}])
@every("version", [versions.CURRENT, versions.BETA_1, versions.ALPHA_3])
@every("kind", ["ResourceClaim", "ResourceSlice", "DeviceClass", "ResourceClaimTemplate", "DeviceCompatibility"])
def test_a_review_of_arbitrary_values_never_fails(spec, version, kind):
    from dra.validation.review import review

    for metadata in (
        None,
        [],
        "x",
        {"name": 1},
        {"name": "a", "namespace": ["x"], "managedFields": [1, {"manager": 2}]},
    ):
        review([{"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}])


def quota(hard):
    return f"apiVersion: drawbridge.dev/v1alpha1\nkind: DeviceQuota\nmetadata: {{name: q}}\nspec: {{hard: {hard}}}\n"


def test_quotas_limit_counts_and_capacities_of_classes():
    assert not codes(quota("{gpu/devices: 4, gpu/memory: 80Gi, gpu/gpu.example.com/cores: 10}"))
    path = "/spec/hard/gpu~1devices"
    assert codes_and_paths(quota("{gpu/devices: -1}")) == {("D108", path)}
    assert codes_and_paths(quota("{gpu/devices: 1500m}")) == {("D108", path)}
    assert codes_and_paths(quota("{gpu: 1}")) == {("D102", "/spec/hard/gpu")}
    assert codes(quota("{GPU/devices: 1}")) == {"D102"}
    assert codes(quota("{}")) == {"D101"}
    assert codes_and_paths(quota("{gpus/devices: 1}"), class_()) == {("D301", "/spec/hard/gpus~1devices")}


def test_unknown_kinds_of_our_group_are_reported():
    assert codes(quota("{}").replace("DeviceQuota", "DeviceQota")) == {"D004"}
    assert not codes(quota("{}").replace("DeviceQuota", "DrawbridgeConfiguration"))


@pytest.mark.long
def test_long_names_are_not_cached():
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for number in range(100):
        assert names.qualified_name(f"{number}" + "a" * 100_000)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < 200_000


@pytest.mark.parametrize(("minor", "dropped"), [(34, True), (36, True), (37, False)])
def test_a_locked_gate_is_on_whatever_gates_are_given(minor, dropped):
    spec = {"extendedResourceName": "example.com/gpu"}
    value = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": spec}
    assert ("D006" in {problem.code for problem in validate_object(value, frozenset(), minor).problems}) is dropped
