"""The matrix of a pool, which says for each pair of device kinds whether they can be in use together."""

import itertools

import pytest

from analysis.loading import reading_of
from analysis.matrix import build_matrices, group_equal, reachable, report
from analysis.matrix import fleet as matrices
from cli.reports import as_markdown
from cluster.manifests import read
from dra import step_limits
from tests import objects as api_objects
from tests.cli.commands.test_simulate_claims import KINDS, PROPOSALS
from tests.cli.explain.scenes import DRIVER, SINCE, fleet, held_claim, pod
from tests.cli.running import MODES, modes, run_json
from webhook.state import Features


def judged_pools(*objects):
    stock = reading_of(list(objects), Features()).stock
    return build_matrices(reachable(stock, stock.nodes).values(), stock)


def markdown_of(*objects):
    return as_markdown(report(group_equal(judged_pools(*objects))))


def example(*names):
    """Return the objects of example files about device modes."""
    return [document.object for name in names for document in read([str(MODES / f"{name}.yaml")])]


def compatibility(name, selector, only_with, **spec):
    """Return a rule: devices that match the selector may be in use only together with devices that match `only_with`."""
    version = "drawbridge.dev/v1alpha1"
    return api_objects.obj("DeviceCompatibility", name, version, driver=DRIVER, selector=selector, compatibleOnlyWith=only_with, **spec)  # fmt: skip


def stages(pool):
    return {cell.stage for row in pool.rows for cell in row.cells}


def kind_of(row):
    """Return the kind of a row's devices, which is part of their names."""
    return row.devices[0].split("-")[2]


@pytest.mark.parametrize("examples", PROPOSALS.values(), ids=PROPOSALS)
def test_the_matrix_agrees_with_allocating_every_pair(examples):
    [pool] = judged_pools(*example("classes", *examples))
    assert [kind_of(row) for row in pool.rows] == ["fractioning", "mps", "mig", "exclusive"]
    for (row_index, row), (column_index, other_row) in itertools.product(enumerate(pool.rows), repeat=2):
        claim_of_column = kind_of(other_row) if row_index != column_index else f"{kind_of(other_row)}-too"
        arguments = ("--claim", kind_of(row), "--claim", claim_of_column)
        code, answer = run_json("simulate", *modes("classes", "claims", *examples), "--node", "gpu-node", *arguments)
        cell = row.cells[column_index]
        assert (cell.stage is None) == (code == 0), (kind_of(row), kind_of(other_row))
        if code:
            assert cell.stage == answer["nodes"]["gpu-node"]["reasons"][-1]["stage"]


def test_the_report_names_device_kinds_and_why_they_are_incompatible():
    text = markdown_of(*example("classes", "groups"))
    assert "pool gpu-node of driver gpu.example.com" in text
    assert all(f"gpu-0-{name}" in text for name in KINDS)
    assert "gpu-0-fractioning-0 is in fractioning, mps, gpu-0-mig-0 is in mig: they have no group in common" in text


def test_an_unusable_pool_is_shown_with_the_reason():
    objects = fleet(1, 1)
    objects[-1]["spec"]["pool"]["resourceSliceCount"] = 2
    assert "cannot be used (incomplete)" in markdown_of(*objects)


def test_an_invalid_node_selector_of_a_slice_leaves_no_pools():
    terms = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Riddle"}]}]}
    objects = fleet(1, 2)
    slices = [obj for obj in objects if obj["kind"] == "ResourceSlice"]
    spec = {name: value for name, value in slices[0]["spec"].items() if name != "nodeName"}
    invalid_slice = slices[0] | {"metadata": {"name": "bad"}, "spec": spec | {"nodeSelector": terms}}
    assert judged_pools(*objects) != []
    assert judged_pools(*objects, invalid_slice) == []


def test_equal_pools_are_shown_once_with_their_holders():
    text = markdown_of(*fleet(5, 2), held_claim("a", "p", on="n3/gpu-1"), pod("p", "a"))
    assert text.count(f"5 equal pools: n0, n1, n2 and 2 more of driver {DRIVER}") == 1
    assert "1: gpu-0 .. gpu-1 (2), 1 of 10 in use | yes" in text
    assert f"n3/gpu-1 | default/a | default/p |  | {SINCE}" in text


def test_a_pool_with_different_devices_has_its_own_row():
    objects = fleet(3, 2)
    objects[-1]["spec"]["devices"].append({"name": "one-more"})
    text = markdown_of(*objects)
    assert f"2 equal pools: n0, n1 of driver {DRIVER}" in text
    assert f"pool n2 of driver {DRIVER}" in text


def test_a_rule_makes_pools_with_different_attributes_unequal():
    objects = fleet(2, 2)
    slices = [obj for obj in objects if obj["kind"] == "ResourceSlice"]
    for slice_, device_kinds in zip(slices, (("a", "a"), ("a", "b")), strict=True):
        for device, value in zip(slice_["spec"]["devices"], device_kinds, strict=True):
            device["attributes"] = {"kind": {"string": value}}
    rule = compatibility("alike", "true", f'device.attributes["{DRIVER}"].kind == "a"', scope="pool")
    pool_of_equal_kinds, pool_of_two_kinds = judged_pools(*objects, rule)
    assert stages(pool_of_equal_kinds) == {None}
    assert "compatibility" in stages(pool_of_two_kinds)


def test_every_share_is_listed_with_its_holder():
    pools = judged_pools(*fleet(3, 1), held_claim("a", "p", on="n1/gpu-0", share={"memory": "3Gi"}))
    assert [pool.pool for pool in pools] == ["n0", "n1", "n2"]
    device_in_use = matrices.InUse(
        device="gpu-0", claim="default/a", pods=("default/p",), since=SINCE, share={"memory": "3Gi"}
    )
    assert [pool.in_use for pool in pools] == [(), (device_in_use,), ()]


def test_a_claim_that_holds_a_missing_device_is_not_listed():
    assert judged_pools(*fleet(1, 1), held_claim("a", "p", on="n0/gpu-9"))[0].in_use == ()


def test_eight_kinds_of_pools_are_shown_and_the_rest_counted():
    objects = fleet(30, 1)
    for number, obj in enumerate(obj for obj in objects if obj["kind"] == "ResourceSlice"):
        obj["spec"]["devices"][0]["name"] = f"gpu-of-{number}"
    text = markdown_of(*objects)
    assert "and 22 pools more, of 22 kinds more; the JSON has all of them" in text
    assert text.count("of driver") == 8


def test_beyond_the_step_limit_pools_are_marked_as_not_judged(monkeypatch):
    monkeypatch.setattr(step_limits, "PAIRS", 5)
    objects = fleet(2, 2)
    objects[-1]["spec"]["devices"][0]["name"] = "other"
    judged_pool, skipped_pool = judged_pools(*objects)
    assert len(judged_pool.rows) == 1
    assert (skipped_pool.rows, skipped_pool.notes) == ((), (matrices.NOT_JUDGED,))
    assert matrices.NOT_JUDGED in markdown_of(*objects)


def test_five_thousand_nodes_make_one_table():
    text = markdown_of(*fleet(5000, 8), held_claim("a", "p", on="n7/gpu-1"))
    assert "5000 equal pools: n0, n1, n10 and 4997 more" in text
    assert "1 of 40000 in use" in text
    assert len(text.splitlines()) < 40


def two_pools_each(rule_scope="node"):
    """Return two nodes, each with a pool of MIG devices and a pool of one whole device, and a rule that forbids these kinds together."""
    objects = fleet(2, 2)
    for slice_ in [obj for obj in objects if obj["kind"] == "ResourceSlice"]:
        node_name = slice_["spec"]["nodeName"]
        mig = {"kind": {"string": "mig"}}
        slice_["spec"]["devices"] = [{"name": f"mig-{i}", "attributes": mig} for i in range(2)]
        pool = {"name": f"{node_name}-whole", "generation": 1, "resourceSliceCount": 1}
        whole_device = [{"name": "whole", "attributes": {"kind": {"string": "whole"}}}]
        spec = slice_["spec"] | {"pool": pool, "devices": whole_device}
        objects.append(slice_ | {"metadata": {"name": f"{node_name}-whole"}, "spec": spec})
    only_mig = f'device.attributes["{DRIVER}"].kind == "mig"'
    return [*objects, compatibility("mig", only_mig, only_mig, scope=rule_scope)]


def test_a_rule_of_scope_node_is_noted_at_each_pool():
    notes = {pool.pool: pool.notes for pool in judged_pools(*two_pools_each())}
    across = "across the pools of a node: DeviceCompatibility/mig keeps"
    assert notes["n0"] == notes["n1"] == (f"{across} mig-0 apart from whole, for example",)
    assert notes["n0-whole"] == (f"{across} whole apart from mig-0, for example",)
    assert f"2 equal pools: n0, n1 of driver {DRIVER}" in markdown_of(*two_pools_each())
    assert across not in markdown_of(*two_pools_each("pool"))
