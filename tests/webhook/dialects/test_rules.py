"""Tables of the administrator's own: what they read beside containers, what they refuse, and what they never do."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dra import validation
from tests.draws import draws
from tests.webhook.dialects.test_fuzzed import AMOUNTS, TEXTS
from tests.webhook.pods import KEY, SIZES, UNKNOWN, became, exactly, outcomes, pod, refused, untouched
from webhook.claims import template
from webhook.state import State
from webhook.state.configuration import read
from webhook.translate.translate import translate

HEAD = {"apiVersion": "drawbridge.dev/v1alpha1", "kind": "DrawbridgeConfiguration"}
GIB = 1 << 30
VGPU = "hami-core-gpu.project-hami.io"
ANNOTATION = {"name": "our.org/a", "place": "annotation"}


def rules(*keys: dict, **more) -> dict:
    """A configuration with one table, which asks by `our.org/gpu`."""
    asks = {"name": "our.org/gpu", "meaning": "GPUs", "role": "count"}
    table = {
        "name": "ours",
        "title": "Ours",
        "target": "vgpu",
        **more,
        "keys": [asks, *({"meaning": "m", **key} for key in keys)],
    }
    return {"dialects": [table]}


def beside(place: str, key: str, text: str, limits: dict | None = None) -> dict:
    """A pod that says something beside its container's resources."""
    made = pod(limits or {"our.org/gpu": 1})
    if place == "env":
        made["spec"]["containers"][0]["env"] = [{"name": key, "value": text}]
    elif place == "nodeSelector":
        made["spec"]["nodeSelector"] = {key: text}
    else:
        made["metadata"][f"{place}s"] = {key: text}
    return made


@pytest.mark.parametrize("place", ["annotation", "label", "nodeSelector", "env"])
def test_memory_is_read_wherever_it_stands(place):
    key = "OUR_MEM" if place == "env" else "our.org/mem"
    row = {"name": key, "place": place, "role": "memory", "unit": "MiB"}
    done = became(beside(place, key, "4096"), **rules(row))
    assert (
        exactly(done) == [{"class": VGPU, "count": 1, "capacity": {"cores": "100", "memory": "4Gi"}}]
        or exactly(done)[0]["capacity"]["memory"] == "4Gi"
    )
    assert outcomes(done)[key] == "translated"


def test_an_expression_reads_the_value():
    row = {
        "name": "our.org/size",
        "place": "label",
        "role": "memory",
        "unit": "GiB",
        "expression": "{'small': 8, 'large': 40}[value]",
    }
    assert exactly(became(beside("label", "our.org/size", "large"), **rules(row)))[0]["capacity"]["memory"] == "40Gi"
    left = became(beside("label", "our.org/size", "huge"), **rules(row))
    assert untouched(left)
    assert "its expression cannot read 'huge'" in left.warnings[0]


def test_an_expression_reads_a_number_on_a_container():
    row = {"name": "our.org/slice", "role": "memory", "unit": "GiB", "expression": "int(value) * 10"}
    done = became(pod({"our.org/gpu": 1, "our.org/slice": 3}), **rules(row))
    assert exactly(done)[0]["capacity"]["memory"] == "30Gi"


@pytest.mark.parametrize(
    ("count", "mib", "said"), [(0, 3000, ["left", "left"]), (0, 0, []), (1, 0, ["translated"] * 2)]
)
def test_a_count_of_0_requests_no_device(count, mib, said):
    row = {"name": "our.org/mib", "role": "memory", "unit": "MiB"}
    done = became(pod({"our.org/gpu": count, "our.org/mib": mib}), **rules(row))
    assert [str(decision.outcome) for decision in done.decisions] == said
    assert untouched(done) == (not count)


def test_an_expression_makes_a_list_of_models():
    row = {
        "name": "our.org/models",
        "place": "annotation",
        "role": "models",
        "unit": "text",
        "expression": "value.split('|')",
    }
    (asked,) = exactly(became(beside("annotation", "our.org/models", "A100|H100"), **rules(row, target="gpu")))
    assert all(model in asked["cel"][0] for model in ("a100", "h100")) or all(
        model in asked["cel"][0] for model in ("A100", "H100")
    )


def test_the_setting_nearest_to_the_container_overrides_the_others():
    both = (
        {"name": "our.org/mem", "place": "annotation", "role": "memory", "unit": "MiB"},
        {"name": "OUR_MEM", "place": "env", "role": "memory", "unit": "MiB"},
    )
    value = beside("env", "OUR_MEM", "2048")
    value["metadata"]["annotations"] = {"our.org/mem": "1024"}
    assert exactly(became(value, **rules(*both)))[0]["capacity"]["memory"] == "2Gi"
    on_container = {"name": "our.org/mib", "role": "memory", "unit": "MiB"}
    value["spec"]["containers"][0]["resources"]["limits"]["our.org/mib"] = 3072
    done = became(value, **rules(*both, on_container))
    assert exactly(done)[0]["capacity"]["memory"] == "3Gi"
    assert outcomes(done)["OUR_MEM"] == "translated"


@pytest.mark.parametrize("text", ["4Gi", "many", "-1", "", "99999999", "9" * 5000, "٤"])
def test_an_annotation_with_an_invalid_number_is_refused(text):
    row = {"name": "our.org/mem", "place": "annotation", "role": "memory", "unit": "MiB", "most": 100_000}
    assert refused(became(beside("annotation", "our.org/mem", text), **rules(row)))


@pytest.mark.parametrize(
    "variable",
    [
        {"valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"value": "$(OTHER)"},
        {"value": 3},
        {"value": "1" * 20_000},
    ],
)
def test_a_variable_that_is_not_written_out_leaves_the_container(variable):
    row = {"name": "OUR_MEM", "place": "env", "role": "memory", "unit": "MiB"}
    value = pod({"our.org/gpu": 1})
    value["spec"]["containers"][0]["env"] = [{"name": "OUR_MEM", **variable}]
    done = became(value, **rules(row))
    assert untouched(done)
    assert "not known" in done.warnings[0]


def affinity(*terms: list[dict]) -> dict:
    chosen = {"nodeSelectorTerms": [{"matchExpressions": term} for term in terms]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": chosen}}


@pytest.mark.parametrize(
    "terms",
    [
        [[{"key": "our.org/model", "operator": "NotIn", "values": ["A100"]}]],
        [[{"key": "our.org/model", "operator": "In", "values": ["A100", "H100"]}]],
        [[{"key": "our.org/model", "operator": "Exists"}]],
        [[{"key": "our.org/model", "operator": "Gt", "values": ["3"]}]],
        [
            [{"key": "our.org/model", "operator": "In", "values": ["A100"]}],
            [{"key": "zone", "operator": "In", "values": ["b"]}],
        ],
    ],
)
def test_a_selector_that_allows_several_values_says_none(terms):
    row = {"name": "our.org/model", "place": "nodeSelector", "role": "models", "unit": "text"}
    done = became(pod({"our.org/gpu": 1}, affinity=affinity(*terms)), **rules(row, target="gpu"))
    assert untouched(done)


def test_an_annotation_alone_asks_for_nothing():
    row = {"name": "our.org/mem", "place": "annotation", "role": "memory", "unit": "MiB"}
    nic = {"name": "our.org/nic", "role": "nic", "target": "nic"}
    assert untouched(became(beside("annotation", "our.org/mem", "4096", {"cpu": 1}), **rules(row)))
    (asked,) = exactly(became(beside("annotation", "our.org/mem", "4096", {"our.org/nic": 1}), **rules(row, nic)))
    assert asked["class"] == "dranet"


def test_words_beside_a_container_that_asks_for_other_things_are_not_read():
    row = {"name": "our.org/mem", "place": "annotation", "role": "memory", "unit": "MiB"}
    nic = {"name": "our.org/nic", "role": "nic", "target": "nic"}
    assert became(beside("annotation", "our.org/mem", "junk", {"our.org/nic": 1}), **rules(row, nic)).changed


def test_an_amount_beyond_64_bits_is_turned_back():
    row = {"name": "our.org/gib", "role": "memory", "unit": "GiB"}
    assert refused(became(pod({"our.org/gpu": 1, "our.org/gib": 2**40}), **rules(row)))
    assert not refused(became(pod({"our.org/gpu": 1, "our.org/gib": 2**20}), **rules(row)))


def test_an_expression_that_is_costly_on_a_long_value_is_turned_back_with_its_rule():
    row = {"name": "our.org/a", "place": "annotation", "role": "cores", "expression": "'x'.matches(value) ? 1 : 2"}
    value = {"apiVersion": "drawbridge.dev/v1alpha1", "kind": "DrawbridgeConfiguration", **rules(row)}
    configuration, findings = read(value)
    assert configuration is None
    assert [(finding.path, finding.message) for finding in findings] == [
        ("/dialects/0/keys/1/expression", "it costs too much on a long value")
    ]


def test_a_value_that_makes_its_expression_costly_leaves_the_pod():
    twice = "value.split(';').all(a, value.split(';').all(b, b != 'z')) ? 1 : 2"
    row = {"name": "our.org/a", "place": "annotation", "role": "cores", "expression": twice}
    done = became(beside("annotation", "our.org/a", "q;" * 500), **rules(row))
    assert untouched(done)
    assert "its expression costs too much on this value" in done.warnings[0]


def test_an_expression_that_makes_no_amount_leaves_the_pod():
    row = {"name": "our.org/mib", "role": "memory", "expression": "int(value) - 10"}
    done = became(pod({"our.org/gpu": 1, "our.org/mib": 3}), **rules(row))
    assert untouched(done)
    assert "its expression makes -7 of 3" in done.warnings[0]


def test_an_expression_that_makes_a_long_list_leaves_the_pod():
    row = {**ANNOTATION, "role": "models", "unit": "text", "expression": "value.split(',')"}
    assert exactly(became(beside("annotation", "our.org/a", ",".join("a" * 20)), **rules(row, target="gpu")))
    done = became(beside("annotation", "our.org/a", ",".join("a" * 300)), **rules(row, target="gpu"))
    assert untouched(done)
    assert "no list of at most 256 texts" in done.warnings[0]


@pytest.mark.parametrize(("role", "unit", "text"), [("memory", "bytes", "1500m"), ("cores", "percent", "9" * 20)])
def test_a_value_that_is_not_a_64_bit_whole_number_is_refused_with_the_reason(role, unit, text):
    row = {**ANNOTATION, "role": role, "unit": unit}
    done = became(beside("annotation", "our.org/a", text), **rules(row))
    assert refused(done)
    assert f"{text!r} is not a whole number of {unit}" in str(done.refusals[0])


@pytest.mark.parametrize(
    ("texts", "cores"), [(["50"], "50"), (["30"], "100"), (["50", "30"], "100"), (["30", "50"], "50")]
)
def test_a_variable_counts_with_its_value_only_and_of_two_the_last(texts, cores):
    row = {"name": "OUR_CORES", "place": "env", "role": "cores", "unit": "percent", "when": "50"}
    value = pod({"our.org/gpu": 1})
    value["spec"]["containers"][0]["env"] = [{"name": "OUR_CORES", "value": text} for text in texts]
    assert exactly(became(value, **rules(row)))[0].get("capacity", {"cores": "100"})["cores"] == cores


def test_a_word_that_is_left_leaves_the_container():
    row = {
        "name": "our.org/a",
        "place": "annotation",
        "role": "cores",
        "outcome": "left",
        "because": "its meaning is unknown",
    }
    done = became(beside("annotation", "our.org/a", "3"), **rules(row))
    assert untouched(done)
    assert "our.org/a" in done.warnings[0]
    assert "its meaning is unknown" in done.warnings[0]


def test_a_count_of_nothing_asks_for_nothing_whatever_else_is_said():
    row = {"name": "our.org/mib", "role": "memory", "unit": "MiB"}
    done = became(pod({"our.org/gpu": 0, "our.org/mib": 3}), **rules(row))
    assert not done.templates


def test_two_keys_that_count_are_two_requests():
    other = {"name": "our.org/nicer", "role": "count", "target": "gpu"}
    done = became(pod({"our.org/gpu": 1, "our.org/nicer": 2}), **rules(other, target="mig"))
    asked = [
        request["exactly"]["count"]
        for spec in done.templates.values()
        for request in spec["spec"]["devices"]["requests"]
    ]
    assert sorted(asked) == [1, 2]


def test_a_size_beside_two_counts_is_not_guessed_at():
    more = (
        {"name": "our.org/b", "role": "count"},
        {"name": "our.org/mib", "role": "memory", "unit": "MiB"},
        {"name": "our.org/gib", "role": "memory", "unit": "GiB"},
    )
    assert untouched(became(pod({"our.org/gpu": 1, "our.org/b": 1, "our.org/mib": 5}), **rules(*more)))
    assert untouched(became(pod({"our.org/gpu": 1, "our.org/mib": 5, "our.org/gib": 5}), **rules(*more)))


DRIVER = {"name": "npu", "driver": "npu.org", "classes": ["npu.org"], "request": "npu"}


def selected(role: str, target: dict) -> dict | None:
    """The request of a pod that says something about the devices of a target; None where it is left."""
    row = {"name": "our.org/which", "place": "annotation", "role": role, "unit": "list"}
    declared = rules(row, target="npu") | {"targets": [target]}
    done = became(beside("annotation", "our.org/which", "x1"), **declared)
    return None if untouched(done) else exactly(done)[0]


@pytest.mark.parametrize(
    ("role", "member", "name", "says"),
    [
        ("models", "product", "npu.org/model", 'has(device.attributes["npu.org"].model) && '),
        ("notModels", "product", "vendor.org/model", '!(has(device.attributes["vendor.org"].model) && '),
        ("uuids", "unique", "npu.org/serial", 'device.attributes["npu.org"].?serial.orValue("") in ["x1"]'),
        ("notUuids", "unique", "vendor.org/id", '!(device.attributes["vendor.org"].?id.orValue("") in ["x1"])'),
        ("uuids", "request", "npu", 'device.attributes["npu.org"].?uuid.orValue("") in ["x1"]'),
    ],
)
def test_devices_are_chosen_by_the_attributes_that_their_target_names(role, member, name, says):
    assert says in selected(role, DRIVER | {member: name})["cel"][0]


@pytest.mark.parametrize("role", ["models", "notModels"])
def test_models_of_a_target_that_does_not_say_where_they_stand_are_left(role):
    assert selected(role, DRIVER) is None


def found(*keys: dict, **more) -> dict[str, str]:
    """What is wrong with such a table, by place within it."""
    configuration, findings = read({**HEAD, **rules(*keys, **more)})
    assert configuration is None
    assert all(finding.remedy for finding in findings)
    return {finding.path.removeprefix("/dialects/0/"): finding.message for finding in findings}


@pytest.mark.parametrize(
    ("row", "place"),
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
        (
            {
                **ANNOTATION,
                "role": "cores",
                "expression": "value.split('').map(a, value.split('').map(b, value.split('').map(c, 1))).size()",
            },
            "keys/1/expression",
        ),
        (
            {**ANNOTATION, "role": "cores", "expression": "value.matches('((a{1,100}){1,100}){1,100}') ? 1 : 0"},
            "keys/1/expression",
        ),
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
)
def test_a_row_that_would_not_do_what_it_says_is_turned_back(row, place):
    assert place in found(row)


@pytest.mark.parametrize("name", ["Ours!", "", "o" * 64, "-ours"])
def test_a_table_is_named_as_commands_can_name_it(name):
    assert list(found(name=name)) == ["name"]


def test_a_name_that_others_have_is_shared_only_if_both_say_so():
    row = {"role": "count", "common": True}
    _, findings = read({**HEAD, **rules({"name": "nvidia.com/gpu", **row})})
    assert findings == []
    assert list(found({"name": "nvidia.com/gpu", "role": "count"})) == ["keys/1/name"]
    assert list(found({"name": "nvidia.com/gpumem", **row})) == ["keys/1/name"]


def test_two_annotations_may_not_say_the_same():
    both = [{"name": f"our.org/{name}", "place": "annotation", "role": "cores"} for name in "ab"]
    assert list(found(*both)) == ["keys/2/role"]


def test_variables_belong_to_containers_and_not_to_pods():
    assert list(found({"name": "X", "place": "env", "role": "cores"}, scope="pod")) == ["keys/1/role"]


def test_too_many_targets_are_one_mistake():
    targets = [{"name": f"t{i}", "driver": "N P"} for i in range(65)]
    _, findings = read({**HEAD, "targets": targets})
    assert [(finding.path, finding.message) for finding in findings] == [("/targets", "65 targets are more than 64")]
    assert len(read({**HEAD, "targets": targets[1:]})[1]) > 1


def test_too_many_rows_are_one_mistake():
    assert list(found(*({"name": f"our.org/k{i}"} for i in range(5_000)))) == ["/dialects"]


@pytest.mark.parametrize(
    ("field", "value", "place"),
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
def test_a_target_whose_names_do_not_fit_a_claim_is_turned_back(field, value, place):
    target = {"name": "npu", "driver": "npu.org", field: value}
    _, findings = read({**HEAD, "targets": [target]})
    assert f"/targets/0/{place}" in {finding.path for finding in findings}


# Any rule file.

NAMES = st.sampled_from(["our.org/a", "our.org/b", "our.org/c<x>", "our.org/c<x>-big", "OUR_A", "our-label", "cpu", "nvidia.com/gpu", "nvidia.com/gpumem", "a/b/c", "<x>/y", "", "drawbridge.dev/skip"])  # fmt: skip
EXPRESSIONS = st.sampled_from(["", "", "int(value)", "int(value) * 1024", "value", "value.split(',')", "[value, value]", "{'a': 1}[value]", "value ==", "dyn(value)", "9223372036854775807", "-1", "value.matches(value) ? 1 : 2", "value.map(x, x)", "'x'.matches(value) ? 'a' : 'b'"])  # fmt: skip
ROWS = st.fixed_dictionaries(
    {
        "name": NAMES,
        "meaning": st.just("m"),
        "role": st.sampled_from(
            [
                "",
                "count",
                "memory",
                "memoryPercent",
                "cores",
                "nic",
                "models",
                "uuids",
                "profile",
                "placed",
                "asks",
                "shares",
            ]
        ),
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
SAYS = st.sampled_from(
    ["our.org/a", "our.org/b", "our.org/c1", "our.org/c1-big", "nvidia.com/gpu", "nvidia.com/gpumem"]
)
BESIDE = st.dictionaries(
    st.sampled_from(["our.org/a", "our.org/b", "OUR_A", "our-label"]),
    TEXTS | st.sampled_from(["1", "2", "40", "a,b"]),
    max_size=3,
)


@st.composite
def pods(draw) -> dict:
    made = pod(*draw(st.lists(st.dictionaries(SAYS, AMOUNTS | st.integers(1, 4), max_size=3), min_size=1, max_size=2)))
    made["metadata"] |= {"annotations": draw(BESIDE), "labels": draw(BESIDE)}
    made["spec"]["nodeSelector"] = draw(BESIDE)
    made["spec"]["containers"][0]["env"] = [{"name": name, "value": text} for name, text in draw(BESIDE).items()]
    return made


NUMBERS = st.sampled_from(["", "int(value)", "int(value) * 1024", "value.size()", "{'true': 1, 'A100,': 2}[value]", "value.matches('x') ? 1 : -1", "dyn(value)"])  # fmt: skip
WORDS = st.sampled_from(["", "value", "value.split(',')", "[value, value + 'x']", "value.matches('x') ? value : ''"])
UNITS = {"memory": "MiB", "cores": "percent", "memoryPercent": "percent", "count": "count"}


@st.composite
def sound_tables(draw) -> dict:
    """Draw a valid table with a row for every place of a key."""
    asks = [{"name": "our.org/a", "role": draw(st.sampled_from(["count", "memory"]))}]
    if draw(st.booleans()):
        asks.append({"name": "our.org/c<x>", "role": draw(st.sampled_from(["count", "memory", "cores", "nic"]))})
    shapes = ["count", "memory", "cores", "memoryPercent", "models", "notModels", "uuids", "notUuids", "profile"]
    places = {"annotation": "our.org/b", "label": "our-label", "nodeSelector": "our.org/a", "env": "OUR_A"}
    roles = draw(st.lists(st.sampled_from(shapes), unique=True, min_size=4, max_size=4))
    rows = [
        *asks,
        *({"name": places[place], "place": place, "role": role} for place, role in zip(places, roles, strict=True)),
    ]
    for row in rows:
        numeric = row["role"] in UNITS or row["role"] == "nic"
        row |= {"meaning": "m", "unit": UNITS.get(row["role"], draw(st.sampled_from(["text", "list"])))}
        expression = draw(NUMBERS if numeric else WORDS.filter(lambda one: "[" not in one and "split" not in one))
        row |= {"expression": expression, "most": draw(st.sampled_from([None, 100, 2**62]))}
    more = {"target": draw(st.sampled_from(["gpu", "vgpu", "nic", "mig", "npu"])), "scope": "container"}
    return {"name": "ours", "title": "t", "keys": rows, **more}


NPU = {
    "name": "npu",
    "driver": "npu.example.com",
    "classes": ["npu.example.com"],
    "where": {"kind": "npu"},
    "product": "npu.example.com/model",
    "unique": "vendor.example.com/serial",
}


def assert_claims_are_taken(configuration, every):
    state = State(configuration=configuration, fleet=UNKNOWN, keys=(KEY,))
    for value in every:
        done = translate(value, state, namespace="n")
        for name, spec in done.templates.items():
            assert validation.errors(template.object_of(name, spec, "n")) == []
        assert not (done.refusals and done.operations)


@given(FILES, pods())
@settings(
    max_examples=draws(300), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
def test_any_rule_file_is_refused_with_a_place_or_makes_claims_that_are_taken(file, value):
    configuration, findings = read({**HEAD, **SIZES, **file})
    if configuration is None:
        assert findings
        assert all(finding.path and finding.message and finding.remedy for finding in findings)
        return
    assert findings == []
    assert_claims_are_taken(configuration, [value])


@given(sound_tables(), st.lists(pods(), min_size=5, max_size=5))
@settings(
    max_examples=draws(200), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
def test_a_rule_file_that_makes_sense_is_taken_and_so_are_its_claims(table, every):
    configuration, findings = read({**HEAD, **SIZES, "targets": [NPU], "dialects": [table]})
    assert findings == []
    assert_claims_are_taken(configuration, every)
