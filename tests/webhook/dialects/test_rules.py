"""Dialects that an administrator wrote. A dialect is a table with a row for each key of a system. Invalid tables are rejected, and accepted tables make valid claims."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra import validation
from tests.loops import every
from tests.webhook.dialects.rule_tables import ANNOTATION, dialect_with
from tests.webhook.dialects.test_fuzzed import AMOUNTS, TEXTS
from tests.webhook.pods import GPU_MODELS, SIGNING_KEY, UNKNOWN, pod
from tests.webhook.state.configurations import HEAD, mistakes
from webhook.claims import template
from webhook.state import State
from webhook.state.configuration import read_configuration
from webhook.translate.translate import translate


def test_an_expression_too_costly_on_long_values_is_rejected():
    row = {"name": "our.org/a", "place": "annotation", "role": "cores", "expression": "'x'.matches(value) ? 1 : 2"}
    assert mistakes_of(row) == {"keys/1/expression": "the expression costs too much on a long value"}


def mistakes_of(*keys: dict, **table_fields) -> dict[str, str]:
    """Return the messages about a rejected table by their paths in the table."""
    reported = mistakes(**dialect_with(*keys, **table_fields))
    return {path.removeprefix("/dialects/0/"): message for path, message in reported.items()}


@every(
    ("row", "path"),
    [
        ({**ANNOTATION, "role": "memroy"}, "keys/1/role"),
        ({**ANNOTATION, "rolle": "memory"}, "keys/1/rolle"),
        ({**ANNOTATION, "role": "nic"}, "keys/1/role"),
        ({**ANNOTATION, "role": "memory"}, "keys/1/unit"),
        ({**ANNOTATION, "role": "memory", "unit": "MiB", "outcome": "ignored"}, "keys/1/outcome"),
        ({**ANNOTATION, "outcome": "refused"}, "keys/1/outcome"),
        ({**ANNOTATION, "expression": "int(value)"}, "keys/1/expression"),
        ({**ANNOTATION, "role": "cores", "expression": "value"}, "keys/1/expression"),
        ({**ANNOTATION, "role": "models", "expression": "int(value)"}, "keys/1/expression"),
        ({**ANNOTATION, "role": "cores", "expression": "int(valeu)"}, "keys/1/expression"),
        ({**ANNOTATION, "role": "cores", "expression": "int(value"}, "keys/1/expression"),
        ({**ANNOTATION, "role": "cores", "expression": "device.driver"}, "keys/1/expression"),
        ({**ANNOTATION, "role": "cores", "expression": "1+" * 600 + "1"}, "keys/1/expression"),
        ({**ANNOTATION, "role": "cores", "expression": "1" + " " * 1024}, "keys/1/expression"),
        ({**ANNOTATION, "role": "cores", "expression": "(" * 400 + "1" + ")" * 400}, "keys/1/expression"),
        ({**ANNOTATION, "role": "cores", "expression": "value.split('').map(a, value.split('').map(b, value.split('').map(c, 1))).size()"}, "keys/1/expression"),
        ({**ANNOTATION, "role": "cores", "expression": "value.matches('((a{1,100}){1,100}){1,100}') ? 1 : 0"}, "keys/1/expression"),
        ({"name": "cpu", "role": "count"}, "keys/1/name"),
        ({"name": "drawbridge.dev/skip", "place": "label", "role": "optOut"}, "keys/1/name"),
        ({"name": "nvidia.com/gpumem", "role": "count"}, "keys/1/name"),
        ({"name": "nvidia.com/mig-1g.5gb", "role": "count"}, "keys/1/name"),
        ({"name": "nvidia.com/mig-<x>.big", "role": "count"}, "keys/1/name"),
        ({"name": "nvidia.com/<anything>", "role": "count"}, "keys/1/name"),
        ({"name": "our.org/<anything>", "role": "count"}, "keys/1/name"),
        ({"name": "our.org/<a><b>", "role": "count"}, "keys/1/name"),
        ({"name": "our.org/x<a>-<a>", "role": "count"}, "keys/1/name"),
        ({"name": "our.org/x<", "role": "count"}, "keys/1/name"),
        ({"name": "our.org/x y", "role": "count"}, "keys/1/name"),
        ({"name": "our.org/.*", "role": "count"}, "keys/1/name"),
        ({"name": "1X", "place": "env", "role": "cores"}, "keys/1/name"),
        ({"name": "our.org/b", "meaning": "x" * 2000}, "keys/1/meaning"),
    ],
)  # fmt: skip
def test_an_invalid_row_is_rejected_at_its_path(row, path):
    assert path in mistakes_of(row)


@pytest.mark.parametrize("name", ["Ours!", "", "o" * 64, "-ours"])
def test_a_dialect_name_must_be_usable_in_commands(name):
    assert list(mistakes_of(name=name)) == ["name"]


def test_a_key_is_shared_only_if_both_dialects_allow_it():
    row = {"role": "count", "common": True}
    _, findings = read_configuration({**HEAD, **dialect_with({"name": "nvidia.com/gpu", **row})})
    assert findings == []
    assert list(mistakes_of({"name": "nvidia.com/gpu", "role": "count"})) == ["keys/1/name"]
    assert list(mistakes_of({"name": "nvidia.com/gpumem", **row})) == ["keys/1/name"]


def test_two_annotations_with_one_role_are_rejected():
    rows = [{"name": f"our.org/{name}", "place": "annotation", "role": "cores"} for name in "ab"]
    assert list(mistakes_of(*rows)) == ["keys/2/role"]


def test_a_dialect_of_scope_pod_reads_no_variables():
    assert list(mistakes_of({"name": "X", "place": "env", "role": "cores"}, scope="pod")) == ["keys/1/role"]


def test_too_many_targets_are_reported_once():
    targets = [{"name": f"t{i}", "driver": "N P"} for i in range(65)]
    _, findings = read_configuration({**HEAD, "targets": targets})
    assert [finding.path for finding in findings] == ["/targets"]
    assert len(read_configuration({**HEAD, "targets": targets[1:]})[1]) > 1


def test_too_many_rows_are_reported_once():
    assert list(mistakes_of(*({"name": f"our.org/k{i}"} for i in range(5_000)))) == ["/dialects"]


@pytest.mark.parametrize(
    ("field", "value", "path"),
    [
        ("driver", "NPU driver", "driver"),
        ("classes", ["Npu!"], "classes/0"),
        ("true", ['x.orValue(true) || "'], "true/0"),
        ("where", {'a"b': "c"}, 'where/a"b'),
        ("where", {"kind": "x" * 65}, "where/kind"),
        ("profile", "a.b", "profile"),
        ("attributes", ["npu.org/a b"], "attributes/0"),
        ("request", "npu-", "request"),
        ("request", "n" * 21, "request"),
    ],
)
def test_a_target_with_names_invalid_in_a_claim_is_rejected(field, value, path):
    target = {"name": "npu", "driver": "npu.org", field: value}
    _, findings = read_configuration({**HEAD, "targets": [target]})
    assert f"/targets/0/{path}" in {finding.path for finding in findings}


@pytest.mark.parametrize(
    ("fields", "remedy"),
    [
        ({"bridge": {"schedulerName": "s", "drivers": ["-"]}}, "write the name in spec.driver of the driver's ResourceSlices"),
        ({"kueue": {"deviceClasses": ["-"]}}, "write the name of a DeviceClass"),
        ({"targets": [{"name": "npu", "driver": "npu.org", "profile": "a.b"}]}, "write the name that the driver's ResourceSlices use"),
    ],
    ids=["driver", "device class", "attribute"],
)  # fmt: skip
def test_the_remedy_for_an_invalid_name_says_what_to_write(fields, remedy):
    _, findings = read_configuration({**HEAD, **fields})
    assert [finding.remedy for finding in findings] == [remedy]


# Random configuration files with dialects and targets

NAMES = st.sampled_from(["our.org/a", "our.org/b", "our.org/c<x>", "our.org/c<x>-big", "OUR_A", "our-label", "cpu", "nvidia.com/gpu", "nvidia.com/gpumem", "a/b/c", "<x>/y", "", "drawbridge.dev/skip"])  # fmt: skip
EXPRESSIONS = st.sampled_from(["", "", "int(value)", "int(value) * 1024", "value", "value.split(',')", "[value, value]", "{'a': 1}[value]", "value ==", "dyn(value)", "9223372036854775807", "-1", "value.matches(value) ? 1 : 2", "value.map(x, x)", "'x'.matches(value) ? 'a' : 'b'"])  # fmt: skip
ROLES = st.sampled_from(["", "count", "memory", "memoryPercent", "cores", "nic", "models", "uuids", "profile", "placed", "requestsDevices", "shares"])  # fmt: skip
ROWS = st.fixed_dictionaries(
    {
        "name": NAMES,
        "meaning": st.just("m"),
        "role": ROLES,
    },
    optional={
        "place": st.sampled_from(["resource", "annotation", "label", "env", "nodeSelector"]),
        "unit": st.sampled_from(["count", "percent", "bytes", "MiB", "GiB", "text", "list", "json"]),
        "outcome": st.sampled_from(["translated", "approximated", "left"]),
        "expression": EXPRESSIONS,
        "most": st.sampled_from([0, 1, 100, 2**70, None]),
        "target": st.sampled_from(["", "gpu", "nic", "npu", "vf", "mig", "efa"]),
        "when": st.sampled_from(["", "true"]),
        "common": st.booleans(),
    },
)
TARGETS = st.fixed_dictionaries(
    {"name": st.sampled_from(["npu", "gpu"]), "driver": st.sampled_from(["npu.example.com", "gpu.nvidia.com", "N P"])},
    optional={
        "classes": st.lists(st.sampled_from(["npu.example.com", "gpu.nvidia.com", "-"]), max_size=2),
        "shared": st.booleans(),
        "separable": st.booleans(),
        "unique": st.sampled_from(["npu.example.com/uuid", "uuid"]),
        "product": st.sampled_from(["npu.example.com/model", "other.example.com/model", "model", "a/b c"]),
        "profile": st.sampled_from(["shape", "profile", "a b"]),
        "where": st.dictionaries(st.sampled_from(["kind", "1"]), st.sampled_from(["npu", '"', "\\"]), max_size=1),
        "true": st.lists(st.sampled_from(["healthy", "a b"]), max_size=1),
        "memory": st.sampled_from(["memory", "hbm", "a/b"]),
        "pooled": st.booleans(),
    },
)
TABLES = st.fixed_dictionaries(
    {"name": st.sampled_from(["ours", "theirs", "hami"]), "title": st.just("t"), "keys": st.lists(ROWS, max_size=5)},
    optional={
        "target": st.sampled_from(["gpu", "vgpu", "npu", "nic"]),
        "scope": st.sampled_from(["pod", "container"]),
        "seenByAll": st.booleans(),
        "system": st.booleans(),
        "apart": st.booleans(),
    },
)
FILES = st.fixed_dictionaries(
    {"dialects": st.lists(TABLES, max_size=2)},
    optional={"targets": st.lists(TARGETS, max_size=2), "approximations": st.just("allow")},
)
POD_KEYS = st.sampled_from(
    ["our.org/a", "our.org/b", "our.org/c1", "our.org/c1-big", "nvidia.com/gpu", "nvidia.com/gpumem"]
)
POD_TEXTS = st.dictionaries(
    st.sampled_from(["our.org/a", "our.org/b", "OUR_A", "our-label"]),
    TEXTS | st.sampled_from(["1", "2", "40", "a,b"]),
    max_size=3,
)


@st.composite
def pods(draw) -> dict:
    manifest = pod(
        *draw(st.lists(st.dictionaries(POD_KEYS, AMOUNTS | st.integers(1, 4), max_size=3), min_size=1, max_size=2))
    )
    manifest["metadata"] |= {"annotations": draw(POD_TEXTS), "labels": draw(POD_TEXTS)}
    manifest["spec"]["nodeSelector"] = draw(POD_TEXTS)
    manifest["spec"]["containers"][0]["env"] = [{"name": name, "value": text} for name, text in draw(POD_TEXTS).items()]
    return manifest


NUMBER_EXPRESSIONS = st.sampled_from(["", "int(value)", "int(value) * 1024", "value.size()", "{'true': 1, 'A100,': 2}[value]", "value.matches('x') ? 1 : -1", "dyn(value)"])  # fmt: skip
TEXT_EXPRESSIONS = st.sampled_from(
    ["", "value", "value.split(',')", "[value, value + 'x']", "value.matches('x') ? value : ''"]
)
UNITS = {"memory": "MiB", "cores": "percent", "memoryPercent": "percent", "count": "count"}


@st.composite
def valid_tables(draw) -> dict:
    """Draw a valid table with a row for every place of a key."""
    request_rows = [{"name": "our.org/a", "role": draw(st.sampled_from(["count", "memory"]))}]
    if draw(st.booleans()):
        request_rows.append(
            {"name": "our.org/c<x>", "role": draw(st.sampled_from(["count", "memory", "cores", "nic"]))}
        )
    role_names = ["count", "memory", "cores", "memoryPercent", "models", "notModels", "uuids", "notUuids", "profile"]
    places = {"annotation": "our.org/b", "label": "our-label", "nodeSelector": "our.org/a", "env": "OUR_A"}
    roles = draw(st.lists(st.sampled_from(role_names), unique=True, min_size=4, max_size=4))
    rows = [
        *request_rows,
        *({"name": places[place], "place": place, "role": role} for place, role in zip(places, roles, strict=True)),
    ]
    for row in rows:
        numeric = row["role"] in UNITS or row["role"] == "nic"
        row |= {"meaning": "m", "unit": UNITS.get(row["role"], draw(st.sampled_from(["text", "list"])))}
        expression = draw(
            NUMBER_EXPRESSIONS
            if numeric
            else TEXT_EXPRESSIONS.filter(lambda text: "[" not in text and "split" not in text)
        )
        row |= {"expression": expression, "most": draw(st.sampled_from([None, 100, 2**62]))}
    fields = {"target": draw(st.sampled_from(["gpu", "vgpu", "nic", "mig", "npu"])), "scope": "container"}
    return {"name": "ours", "title": "t", "keys": rows, **fields}


NPU_TARGET = {
    "name": "npu",
    "driver": "npu.example.com",
    "classes": ["npu.example.com"],
    "where": {"kind": "npu"},
    "product": "npu.example.com/model",
    "unique": "vendor.example.com/serial",
}


def assert_claims_are_valid(configuration, manifests):
    state = State(configuration=configuration, fleet=UNKNOWN, keys=(SIGNING_KEY,))
    for manifest in manifests:
        verdict = translate(manifest, state, namespace="n")
        for name, spec in verdict.templates.items():
            assert validation.errors(template.object_of(name, spec, "n")) == []
        assert not (verdict.refusals and verdict.operations)


@given(FILES, pods())
def test_any_configuration_file_is_rejected_or_makes_valid_claims(file, manifest):
    configuration, findings = read_configuration({**HEAD, **GPU_MODELS, **file})
    if configuration is None:
        assert findings
        assert all(finding.path and finding.message and finding.remedy for finding in findings)
        return
    assert findings == []
    assert_claims_are_valid(configuration, [manifest])


@given(valid_tables(), st.lists(pods(), min_size=5, max_size=5))
def test_a_valid_table_is_accepted_and_makes_valid_claims(table, manifests):
    configuration, findings = read_configuration({**HEAD, **GPU_MODELS, "targets": [NPU_TARGET], "dialects": [table]})
    assert findings == []
    assert_claims_are_valid(configuration, manifests)
