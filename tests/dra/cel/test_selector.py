"""The interface of `dra.cel`: compiling, matching, deriving attributes, the fields that are read, and error messages."""

import pytest

from dra import cel
from dra.cel import cost
from dra.cel.device_fields import SLOTS
from dra.cel.environment import environment
from dra.cel.evaluation.account import DEVICE
from dra.cel.reads import Reads
from dra.errors import CostExceeded, SelectorError, SelectorRunError, SelectorSyntaxError, SelectorTypeError
from dra.quantity import Quantity
from dra.semver import Version
from dra.server import LISTS
from tests.dra.cel.devices import BARE, GPU, VIEWS, view
from tests.loops import every

GPU_VIEW = VIEWS[0]


def test_a_selector_is_compiled_once_for_all_devices():
    selector = cel.compile('device.attributes["gpu.example.com"].?model.orValue("") == "H100"')
    assert cel.compile(selector.text) is selector
    assert [selector.matches(device) for device in VIEWS] == [True, False, False]


def test_a_view_can_be_made_without_an_api_object():
    made_view = cel.DeviceView("d", {"d": {"speed": 5}}, {"d": {"memory": Quantity.parse("1Gi")}}, allow_multiple=True)
    assert made_view.driver == "d"
    text = 'device.driver == "d" && device.attributes.d.speed == 5 && device.allowMultipleAllocations'
    assert cel.compile(f'{text} && device.capacity["d"].memory == quantity("1Gi")').matches(made_view)


def test_durations_are_subtracted():
    assert cel.compile('duration("1h") - duration("20m") == duration("40m")').matches(GPU_VIEW)


def test_an_evaluation_error_is_raised_and_not_false():
    selector = cel.compile('device.attributes["gpu.example.com"].nope == 1')
    with pytest.raises(SelectorRunError, match="no such key: nope"):
        selector.matches(GPU_VIEW)


def test_a_result_that_is_not_a_bool_is_an_error():
    with pytest.raises(SelectorRunError, match="type string could not be converted to bool"):
        cel.compile('device.attributes["gpu.example.com"].model').matches(GPU_VIEW)


@pytest.mark.parametrize(
    ("attribute", "why"),
    [
        ({}, "unsupported attribute value"),
        ({"version": "1.2"}, "parse semantic version"),
        ({"versions": ["1.0.0", "x"]}, "parse semantic version"),
    ],
)
def test_a_device_with_an_unreadable_attribute_fails_every_selector(attribute, why):
    broken = view({**BARE, "attributes": {"bad": attribute}})
    with pytest.raises(SelectorRunError, match=f"attribute bad: {why}"):
        cel.compile("true").matches(broken)
    with pytest.raises(SelectorRunError, match="attribute bad"):
        cel.compile("1", derived=True).derive(broken)


def test_a_name_with_domain_precedes_one_without():
    with_both_names = {
        "driver": "d",
        "attributes": {"a": {"int": 1}, "d/a": {"int": 2}, "b": {"int": 3}},
        "capacity": {"c": {"value": "1"}, "d/c": {"value": "2"}},
    }
    for device in (
        with_both_names,
        {**with_both_names, "attributes": dict(reversed(with_both_names["attributes"].items()))},
    ):
        assert cel.compile("device.attributes.d.a == 2 && device.attributes.d.b == 3").matches(view(device))
        assert cel.compile("device.capacity.d.c.asInteger() == 2").matches(view(device))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('device.attributes["gpu.example.com"].index + 1', 1),
        ('device.attributes["gpu.example.com"].model', "H100"),
        ('device.attributes["gpu.example.com"].mig', False),
        ('device.attributes["gpu.example.com"].driverVersion', Version.parse("570.124.6")),
        ('device.attributes["gpu.example.com"].profiles.filter(p, p.startsWith("3"))', ["3g.40gb"]),
        ("[].filter(x, x > 1)", []),
        ("[1, 2].map(x, x + 1)", [2, 3]),
        ('[semver("1.0.0")]', [Version.parse("1.0.0")]),
    ],
)
def test_a_derived_attribute_keeps_its_type(text, value):
    derived = cel.compile(text, derived=True).derive(GPU_VIEW)
    assert derived == value
    assert type(derived) is type(value)


@pytest.mark.parametrize("text", ["1.5", "quantity('1')", "{'a': 1}", "[1.5]", "[[1]]", "null", "device"])
def test_a_derived_attribute_of_an_unsupported_type_is_rejected(text):
    with pytest.raises(SelectorTypeError, match="must evaluate to a primitive scalar"):
        cel.compile(text, derived=True)


@pytest.mark.oracle
def test_derived_attributes_equal_those_of_go(cel_oracle):
    texts = [
        'device.attributes["gpu.example.com"].index + 1', 'device.attributes["gpu.example.com"].profiles', "[semver('1.0.0+a')]", "1.5", "[]",
        "dyn(1.5)", "dyn([1, true].map(x, dyn(x)))", "[dyn(1), dyn('a')]", "true", '"x"', "[1u]", "dyn(1u)", 'semver("v1", true)', "[[1]]", "dyn([[1]])",
    ]  # fmt: skip
    answers = cel_oracle.ask_all({"expr": text, "derived": True, "devices": [GPU]} for text in texts)
    for text, answer in zip(texts, answers, strict=True):
        assert _derived(text) == _derived_by_go(answer), text


def _derived(text):
    try:
        value = cel.compile(text, derived=True).derive(GPU_VIEW)
    except SelectorTypeError:
        return "rejected"
    except SelectorError:
        return "error"
    if isinstance(value, list):
        return [str(item) if isinstance(item, Version) else item for item in value]
    return str(value) if isinstance(value, Version) else value


def _derived_by_go(answer):
    if "compileError" in answer:
        return "rejected"
    (outcome,) = answer["outcomes"]
    if "error" in outcome:
        return "error"
    return next(iter(outcome["value"].values()), [])


def test_all_parts_of_the_evaluator_know_the_same_fields():
    fields = environment(cel.STORED).fields
    device_value = GPU_VIEW.slots[DEVICE]
    assert set(fields) == set(device_value) == set(cost._ROOTS["device"].fields)
    assert [device_value[name] for name in SLOTS] == list(GPU_VIEW.slots[:DEVICE])
    for name in fields:
        read = cel.compile(f"device.{name} == device.{name}").reads
        assert read != Reads(), name
        assert read.everything == (name in {"attributes", "capacity"}), name


def test_new_objects_can_use_fewer_functions_than_stored_objects():
    text = 'device.attributes["gpu.example.com"].profiles.includes("x")'
    assert cel.compile(text)
    assert cel.compile(text, cel.NEW, gates=frozenset({LISTS}))
    with pytest.raises(SelectorTypeError, match="undeclared reference to 'includes'"):
        cel.compile(text, cel.NEW)
    assert cel.compile("device.allowMultipleAllocations", cel.NEW)
    with pytest.raises(SelectorTypeError, match="undefined field 'allowMultipleAllocations'"):
        cel.compile("device.allowMultipleAllocations", cel.NEW, gates=frozenset())


def test_a_costly_expression_is_reported_at_admission_and_stopped_later():
    assert cel.compile("true").max_cost <= cel.MAX_COST
    ten = "[1,2,3,4,5,6,7,8,9,10]"
    costly = "".join(f"{ten}.all(v{i}, " for i in range(6)) + "v0 + v5 > 0" + ")" * 6
    selector = cel.compile(costly)
    assert selector.max_cost > cel.MAX_COST
    with pytest.raises(CostExceeded, match="actual cost limit exceeded"):
        selector.matches(GPU_VIEW)


def test_a_high_estimate_does_not_stop_a_cheap_evaluation():
    selector = cel.compile('device.attributes["gpu.example.com"].profiles.all(p, p.contains("g"))')
    assert selector.max_cost > cel.MAX_COST
    assert selector.matches(GPU_VIEW)


READS = [
    ("true", [], ()),
    ('device.driver == "x"', [], ("driver",)),
    ("device.allowMultipleAllocations", [], ("allowMultipleAllocations",)),
    ('device.attributes["a"].b == 1', [("attributes", "a", "b")], ()),
    ('device.attributes["a"]["b"] == 1', [("attributes", "a", "b")], ()),
    (
        'device.attributes.a.b == 1 && device.capacity["c"].d.isInteger()',
        [("attributes", "a", "b"), ("capacity", "c", "d")],
        (),
    ),
    ('device.attributes["a"].?b.orValue(1) == 1', [("attributes", "a", "b")], ()),
    ('device.attributes[?"a"].?b.orValue(1) == 1', [("attributes", "a", "b")], ()),
    ('has(device.attributes["a"].b)', [("attributes", "a", "b")], ()),
    ('"b" in device.attributes["a"]', [("attributes", "a", "b")], ()),
    ('"b" in [device.driver]', [], ("driver",)),
    ('cel.bind(g, device.capacity["a"], "b" in g)', [("capacity", "a", "b")], ()),
    (
        'cel.bind(g, device.attributes["a"], g.b == 1 && g.?c.orValue(1) == 1)',
        [("attributes", "a", "b"), ("attributes", "a", "c")],
        (),
    ),
    ('cel.bind(d, device, d.driver == "x" && d.attributes.a.b == 1)', [("attributes", "a", "b")], ("driver",)),
    ('[1].all(x, device.attributes["a"].b == x)', [("attributes", "a", "b")], ()),
    ('device.attributes["a"].b.exists(x, x == 1)', [("attributes", "a", "b")], ()),
    ("[1].all(device, device > 0)", [], ()),
]
READING_ALL_FIELDS = [
    "dyn(device).size() == 4",
    'device.attributes["a"].exists(k, k == "b")',
    'device.attributes["a"].size() == 0',
    '"a" in device.attributes',
    'device.driver in device.attributes["a"]',
    'device.attributes.exists(d, d == "a")',
    "device.attributes[device.driver].b == 1",
    'device.attributes["a"][device.driver] == 1',
    'device.attributes["a"] == {}',
    'cel.bind(g, device.attributes["a"], g.size() == 0)',
    '(true ? device.attributes["a"] : device.attributes["b"]).c == 1',
    'device.attributes[?"a"].hasValue()',
    "device == device",
]  # fmt: skip


@every(("text", "names", "scalars"), READS)
def test_the_syntax_tree_shows_which_fields_are_read(text, names, scalars):
    assert cel.compile(text).reads == cel.Reads(frozenset(names), frozenset(scalars))


@every("text", READING_ALL_FIELDS)
def test_an_expression_without_literal_field_names_reads_all_fields(text):
    assert cel.compile(text).reads.everything


def test_devices_with_equal_read_fields_share_an_answer():
    """Callers evaluate a selector once for many devices. The test uses every expression of the corpus."""
    from tests.dra.cel.corpus import expressions

    checked = 0
    for text in expressions():
        try:
            selector = cel.compile(text)
        except SelectorError:
            continue
        if not selector.reads.everything:
            assert _outcome(selector, GPU_VIEW) == _outcome(selector, _view_of_read_fields(selector.reads)), text
            checked += 1
    assert checked > 300


def _view_of_read_fields(reads):
    """Return a device with the values that an expression reads; all other values are missing or different."""
    all_values, scalars = GPU_VIEW.slots[DEVICE], reads.scalars
    read_values = {"attributes": {}, "capacity": {}}
    for kind, domain, name in reads.names:
        if name in all_values[kind][domain]:
            read_values[kind].setdefault(domain, {})[name] = all_values[kind][domain][name]
    driver = GPU_VIEW.driver if "driver" in scalars else "another.example.com"
    multiple = all_values["allowMultipleAllocations"] == ("allowMultipleAllocations" in scalars)
    return cel.DeviceView(driver, **read_values, allow_multiple=multiple)


def _outcome(selector, device):
    try:
        return selector.matches(device)
    except SelectorError as error:
        return type(error)


@every(
    ("text", "kind", "position", "message"),
    [
        ("device.driver == ", SelectorSyntaxError, 17, "unexpected"),
        ("device.driver = 'x'", SelectorSyntaxError, 14, "no token can start with '='"),
        ("a.all(1, true)", SelectorSyntaxError, 6, "argument must be a simple name"),
        ("9223372036854775808 == 1", SelectorSyntaxError, 0, "invalid int literal"),
        ("if == 1", SelectorSyntaxError, 0, "reserved identifier: if"),
        ('device.drivr == "x"', SelectorTypeError, 6, "undefined field 'drivr'"),
        ('true && devic.driver == "x"', SelectorTypeError, 8, "undeclared reference to 'devic'"),
        (
            "device.driver == 1",
            SelectorTypeError,
            14,
            "found no matching overload for '_==_' applied to '(string, int)'",
        ),
        (
            'quantity("1").sign() == 1',
            SelectorTypeError,
            18,
            "found no matching overload for 'sign' applied to 'kubernetes.Quantity.()'",
        ),
        ("[1, 'a'] == [1]", SelectorTypeError, 4, "expected type 'int' but found 'string'"),
        ("'a'.matches('(')", SelectorTypeError, 12, "invalid matches argument"),
        ("1 + 1", SelectorTypeError, None, "must evaluate to bool or the unknown type, not int"),
    ],
)
def test_a_compile_error_has_reason_and_position(text, kind, position, message):
    with pytest.raises(kind) as caught:
        cel.compile(text)
    assert message in str(caught.value)
    assert caught.value.position == position
