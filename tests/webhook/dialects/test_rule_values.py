"""Dialects (tables of keys) that an administrator wrote: values in annotations, labels, node selectors and environment variables."""

import pytest

from tests.webhook.dialects.rule_tables import ANNOTATION, dialect_with
from tests.webhook.pods import exactly, expression, outcomes, pod, refused, required_affinity, untouched, verdict_of


def pod_with_value(place: str, key: str, text: str, limits: dict | None = None) -> dict:
    """Return a pod with a value in an environment variable, a node selector, an annotation or a label."""
    manifest = pod(limits or {"our.org/gpu": 1})
    if place == "env":
        manifest["spec"]["containers"][0]["env"] = [{"name": key, "value": text}]
    elif place == "nodeSelector":
        manifest["spec"]["nodeSelector"] = {key: text}
    else:
        manifest["metadata"][f"{place}s"] = {key: text}
    return manifest


@pytest.mark.parametrize("place", ["annotation", "label", "nodeSelector", "env"])
def test_memory_is_read_from_every_place(place):
    key = "OUR_MEM" if place == "env" else "our.org/mem"
    row = {"name": key, "place": place, "role": "memory", "unit": "MiB"}
    verdict = verdict_of(pod_with_value(place, key, "4096"), **dialect_with(row))
    assert exactly(verdict)[0]["capacity"]["memory"] == "4Gi"
    assert outcomes(verdict)[key] == "translated"


def test_an_expression_reads_the_value():
    sizes = "{'small': 8, 'large': 40}[value]"
    row = {"name": "our.org/size", "place": "label", "role": "memory", "unit": "GiB", "expression": sizes}
    verdict = verdict_of(pod_with_value("label", "our.org/size", "large"), **dialect_with(row))
    assert exactly(verdict)[0]["capacity"]["memory"] == "40Gi"
    left_verdict = verdict_of(pod_with_value("label", "our.org/size", "huge"), **dialect_with(row))
    assert untouched(left_verdict)
    assert "its expression cannot read 'huge'" in left_verdict.warnings[0]


def test_an_expression_reads_a_number_on_a_container():
    row = {"name": "our.org/slice", "role": "memory", "unit": "GiB", "expression": "int(value) * 10"}
    verdict = verdict_of(pod({"our.org/gpu": 1, "our.org/slice": 3}), **dialect_with(row))
    assert exactly(verdict)[0]["capacity"]["memory"] == "30Gi"


@pytest.mark.parametrize(
    ("count", "mib", "expected_outcomes"), [(0, 3000, ["left", "left"]), (0, 0, []), (1, 0, ["translated"] * 2)]
)
def test_only_a_positive_count_requests_a_device(count, mib, expected_outcomes):
    row = {"name": "our.org/mib", "role": "memory", "unit": "MiB"}
    verdict = verdict_of(pod({"our.org/gpu": count, "our.org/mib": mib}), **dialect_with(row))
    assert [str(decision.outcome) for decision in verdict.decisions] == expected_outcomes
    assert untouched(verdict) == (not count)


def test_an_expression_makes_a_list_of_models():
    row = {**ANNOTATION, "role": "models", "unit": "text", "expression": "value.split('|')"}
    manifest = pod_with_value("annotation", "our.org/a", "A100|H100")
    (request,) = exactly(verdict_of(manifest, **dialect_with(row, target="gpu")))
    assert all(model in request["cel"][0].lower() for model in ("a100", "h100"))


def test_the_setting_nearest_to_the_container_overrides_the_others():
    rows = (
        {"name": "our.org/mem", "place": "annotation", "role": "memory", "unit": "MiB"},
        {"name": "OUR_MEM", "place": "env", "role": "memory", "unit": "MiB"},
    )
    manifest = pod_with_value("env", "OUR_MEM", "2048")
    manifest["metadata"]["annotations"] = {"our.org/mem": "1024"}
    assert exactly(verdict_of(manifest, **dialect_with(*rows)))[0]["capacity"]["memory"] == "2Gi"
    on_container = {"name": "our.org/mib", "role": "memory", "unit": "MiB"}
    manifest["spec"]["containers"][0]["resources"]["limits"]["our.org/mib"] = 3072
    verdict = verdict_of(manifest, **dialect_with(*rows, on_container))
    assert exactly(verdict)[0]["capacity"]["memory"] == "3Gi"
    assert outcomes(verdict)["OUR_MEM"] == "translated"


@pytest.mark.parametrize("text", ["4Gi", "many", "-1", "", "99999999", "9" * 5000, "٤"])
def test_an_annotation_with_an_invalid_number_is_refused(text):
    row = {"name": "our.org/mem", "place": "annotation", "role": "memory", "unit": "MiB", "most": 100_000}
    assert refused(verdict_of(pod_with_value("annotation", "our.org/mem", text), **dialect_with(row)))


@pytest.mark.parametrize(
    "variable", [{"valueFrom": {"fieldRef": {}}}, {"value": "$(OTHER)"}, {"value": 3}, {"value": "1" * 20_000}]
)
def test_a_variable_with_an_unknown_value_leaves_the_container_unchanged(variable):
    row = {"name": "OUR_MEM", "place": "env", "role": "memory", "unit": "MiB"}
    manifest = pod({"our.org/gpu": 1})
    manifest["spec"]["containers"][0]["env"] = [{"name": "OUR_MEM", **variable}]
    verdict = verdict_of(manifest, **dialect_with(row))
    assert untouched(verdict)
    assert "not known" in verdict.warnings[0]


@pytest.mark.parametrize(
    "terms",
    [
        [expression("our.org/model", "NotIn", "A100")],
        [expression("our.org/model", "In", "A100", "H100")],
        [expression("our.org/model", "Exists")],
        [expression("our.org/model", "Gt", "3")],
        [expression("our.org/model", "In", "A100"), expression("zone", "In", "b")],
    ],
)
def test_a_selector_that_allows_several_values_leaves_the_pod_unchanged(terms):
    row = {"name": "our.org/model", "place": "nodeSelector", "role": "models", "unit": "text"}
    verdict = verdict_of(pod({"our.org/gpu": 1}, affinity=required_affinity(*terms)), **dialect_with(row, target="gpu"))
    assert untouched(verdict)


def test_an_annotation_alone_requests_nothing():
    row = {"name": "our.org/mem", "place": "annotation", "role": "memory", "unit": "MiB"}
    nic = {"name": "our.org/nic", "role": "nic", "target": "nic"}
    assert untouched(verdict_of(pod_with_value("annotation", "our.org/mem", "4096", {"cpu": 1}), **dialect_with(row)))
    for text in ("4096", "junk"):
        manifest = pod_with_value("annotation", "our.org/mem", text, {"our.org/nic": 1})
        (request,) = exactly(verdict_of(manifest, **dialect_with(row, nic)))
        assert request["class"] == "dranet"


def test_an_amount_beyond_64_bits_is_refused():
    row = {"name": "our.org/gib", "role": "memory", "unit": "GiB"}
    assert refused(verdict_of(pod({"our.org/gpu": 1, "our.org/gib": 2**40}), **dialect_with(row)))
    assert not refused(verdict_of(pod({"our.org/gpu": 1, "our.org/gib": 2**20}), **dialect_with(row)))


def test_a_value_too_costly_to_compute_leaves_the_pod_unchanged():
    costly_expression = "value.split(';').all(a, value.split(';').all(b, b != 'z')) ? 1 : 2"
    row = {"name": "our.org/a", "place": "annotation", "role": "cores", "expression": costly_expression}
    verdict = verdict_of(pod_with_value("annotation", "our.org/a", "q;" * 500), **dialect_with(row))
    assert untouched(verdict)
    assert "its expression costs too much on this value" in verdict.warnings[0]


@pytest.mark.parametrize(
    ("text", "reason"),
    [("int(value) - 10", "its expression makes -7 of 3"), ("{'1': 8}[value]", "its expression cannot read '3'")],
)
def test_an_expression_that_makes_no_amount_leaves_the_pod_unchanged(text, reason):
    row = {"name": "our.org/mib", "role": "memory", "expression": text}
    verdict = verdict_of(pod({"our.org/gpu": 1, "our.org/mib": 3}), **dialect_with(row))
    assert untouched(verdict)
    assert f"left as it is: {reason}" in verdict.warnings[0]


def test_an_expression_that_makes_a_long_list_changes_nothing():
    dialect = dialect_with(
        {**ANNOTATION, "role": "models", "unit": "text", "expression": "value.split(',')"}, target="gpu"
    )
    assert exactly(verdict_of(pod_with_value("annotation", "our.org/a", ",".join("a" * 20)), **dialect))
    verdict = verdict_of(pod_with_value("annotation", "our.org/a", ",".join("a" * 300)), **dialect)
    assert untouched(verdict)
    assert "no list of at most 256 texts" in verdict.warnings[0]


@pytest.mark.parametrize(("role", "unit", "text"), [("memory", "bytes", "1500m"), ("cores", "percent", "9" * 20)])
def test_a_value_other_than_a_64_bit_integer_is_refused(role, unit, text):
    row = {**ANNOTATION, "role": role, "unit": unit}
    verdict = verdict_of(pod_with_value("annotation", "our.org/a", text), **dialect_with(row))
    assert refused(verdict)
    assert f"{text!r} is not a whole number of {unit}" in str(verdict.refusals[0])


@pytest.mark.parametrize(
    ("texts", "cores"), [(["50"], "50"), (["30"], "100"), (["50", "30"], "100"), (["30", "50"], "50")]
)
def test_of_variables_with_one_name_only_the_last_is_read(texts, cores):
    """The row has an effect only with value 50."""
    row = {"name": "OUR_CORES", "place": "env", "role": "cores", "unit": "percent", "when": "50"}
    manifest = pod({"our.org/gpu": 1})
    manifest["spec"]["containers"][0]["env"] = [{"name": "OUR_CORES", "value": text} for text in texts]
    assert exactly(verdict_of(manifest, **dialect_with(row)))[0].get("capacity", {"cores": "100"})["cores"] == cores


def test_a_key_with_outcome_left_leaves_the_container_unchanged():
    row = {**ANNOTATION, "role": "cores", "outcome": "left", "because": "its meaning is unknown"}
    verdict = verdict_of(pod_with_value("annotation", "our.org/a", "3"), **dialect_with(row))
    assert untouched(verdict)
    assert "our.org/a" in verdict.warnings[0]
    assert "its meaning is unknown" in verdict.warnings[0]


def test_two_keys_that_count_are_two_requests():
    second_count = {"name": "our.org/nicer", "role": "count", "target": "gpu"}
    verdict = verdict_of(pod({"our.org/gpu": 1, "our.org/nicer": 2}), **dialect_with(second_count, target="mig"))
    requests = [
        request["exactly"]["count"]
        for spec in verdict.templates.values()
        for request in spec["spec"]["devices"]["requests"]
    ]
    assert sorted(requests) == [1, 2]


def test_two_sizes_or_a_size_beside_two_counts_are_ambiguous():
    rows = (
        {"name": "our.org/b", "role": "count"},
        {"name": "our.org/mib", "role": "memory", "unit": "MiB"},
        {"name": "our.org/gib", "role": "memory", "unit": "GiB"},
    )
    assert untouched(verdict_of(pod({"our.org/gpu": 1, "our.org/b": 1, "our.org/mib": 5}), **dialect_with(*rows)))
    assert untouched(verdict_of(pod({"our.org/gpu": 1, "our.org/mib": 5, "our.org/gib": 5}), **dialect_with(*rows)))


NPU_TARGET = {"name": "npu", "driver": "npu.org", "classes": ["npu.org"], "request": "npu"}


def selected_request(role: str, target: dict) -> dict | None:
    """Return the request of a pod whose key has this role and selects devices of this target; None if the pod is left unchanged."""
    row = {"name": "our.org/which", "place": "annotation", "role": role, "unit": "list"}
    declared = dialect_with(row, target="npu") | {"targets": [target]}
    verdict = verdict_of(pod_with_value("annotation", "our.org/which", "x1"), **declared)
    return None if untouched(verdict) else exactly(verdict)[0]


@pytest.mark.parametrize(
    ("role", "field", "name", "selector"),
    [
        ("models", "product", "npu.org/model", 'has(device.attributes["npu.org"].model) && '),
        ("notModels", "product", "vendor.org/model", '!(has(device.attributes["vendor.org"].model) && '),
        ("uuids", "unique", "npu.org/serial", 'device.attributes["npu.org"].?serial.orValue("") in ["x1"]'),
        ("notUuids", "unique", "vendor.org/id", '!(device.attributes["vendor.org"].?id.orValue("") in ["x1"])'),
        ("uuids", "request", "npu", 'device.attributes["npu.org"].?uuid.orValue("") in ["x1"]'),
    ],
)
def test_devices_are_selected_by_the_attributes_of_their_target(role, field, name, selector):
    assert selector in selected_request(role, NPU_TARGET | {field: name})["cel"][0]


@pytest.mark.parametrize("role", ["models", "notModels"])
def test_models_without_a_model_attribute_are_left_unchanged(role):
    assert selected_request(role, NPU_TARGET) is None
