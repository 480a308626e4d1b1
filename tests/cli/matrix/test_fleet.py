"""Matrices of a fleet and of dumps: equal devices are shown once, with their holders; a picture does nothing to its reader."""

import re
from xml.etree import ElementTree as ET

from analysis.matrix import fleet as matrices
from cluster.embedded import Embedded
from cluster.kubernetes import Kubernetes
from dra import step_limits
from tests.cli.explain.scenes import DRIVER, SINCE, dump, fleet, held, pod
from tests.cli.running import modes, run, run_json

EVIL = "<script>alert(1)</script>\x1b[31m"


def told(tmp_path, *objects, more=()):
    return run("matrix", "-f", dump(tmp_path, *objects), *more)


def test_equal_pools_are_shown_once_with_their_holders(tmp_path):
    done = told(tmp_path, *fleet(5, 2), held("a", "p", on="n3/gpu-1"), pod("p", "a"))
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert lines[0] == f"5 equal pools: n0, n1, n2 and 2 more of driver {DRIVER}"
    assert "  1  gpu-0 .. gpu-1 (2), 1 of 10 in use  yes" in lines
    assert f"  n3/gpu-1  default/a  default/p  {SINCE}" in lines
    assert sum(line.startswith("5 equal pools") for line in lines) == 1


def test_a_pool_whose_devices_are_others_stands_by_itself(tmp_path):
    objects = fleet(3, 2)
    objects[-1]["spec"]["devices"].append({"name": "one-more"})
    done = told(tmp_path, *objects)
    assert f"2 equal pools: n0, n1 of driver {DRIVER}" in done.stdout
    assert f"pool n2 of driver {DRIVER}" in done.stdout


def test_with_a_rule_each_pool_is_judged_by_its_own_attributes(tmp_path):
    """Devices of one name may be of two kinds on two nodes, and a rule reads that."""
    objects = fleet(2, 2)
    slices = [one for one in objects if one["kind"] == "ResourceSlice"]
    for slice_, kinds in zip(slices, (("a", "a"), ("a", "b")), strict=True):
        for device, kind in zip(slice_["spec"]["devices"], kinds, strict=True):
            device["attributes"] = {"kind": {"string": kind}}
    rule = {
        "apiVersion": "drawbridge.dev/v1alpha1",
        "kind": "DeviceCompatibility",
        "metadata": {"name": "alike"},
        "spec": {
            "driver": DRIVER,
            "selector": "true",
            "scope": "pool",
            "compatibleOnlyWith": f'device.attributes["{DRIVER}"].kind == "a"',
        },
    }
    code, found = run_json("matrix", "-f", dump(tmp_path, *objects, rule))
    assert code == 0
    first, second = found["pools"]
    assert [cell["stage"] for row in first["rows"] for cell in row["cells"]] == [None]
    assert "compatibility" in {cell["stage"] for row in second["rows"] for cell in row["cells"]}


def test_json_has_every_pool_and_every_share(tmp_path):
    code, found = run_json(
        "matrix", "-f", dump(tmp_path, *fleet(3, 1), held("a", "p", on="n1/gpu-0", share={"memory": "3Gi"}))
    )
    assert code == 0
    assert [one["pool"] for one in found["pools"]] == ["n0", "n1", "n2"]
    assert [one["inUse"] for one in found["pools"]] == [
        [],
        [{"device": "gpu-0", "claim": "default/a", "pods": ["default/p"], "since": SINCE, "share": {"memory": "3Gi"}}],
        [],
    ]


def test_a_claim_on_a_device_that_is_gone_uses_no_device_of_the_pool(tmp_path):
    code, found = run_json("matrix", "-f", dump(tmp_path, *fleet(1, 1), held("a", "p", on="n0/gpu-9")))
    assert code == 0
    assert found["pools"][0]["inUse"] == []


def test_a_live_cluster_is_read_where_no_file_is_named(monkeypatch):
    cluster = Embedded()
    cluster.load([*fleet(2, 1), held("a", "p", on="n1/gpu-0")])
    monkeypatch.setattr(Kubernetes, "connect", lambda **_: cluster)
    code, found = run_json("matrix")
    assert code == 0
    assert [(one["pool"], len(one["inUse"])) for one in found["pools"]] == [("n0", 0), ("n1", 1)]
    code, answer = run_json("explain", "device", "n1/gpu-0")
    assert (code, answer["device"]["state"]) == (0, "held")


def test_files_and_a_cluster_contradict():
    done = run("matrix", "-f", "x", "--context", "y")
    assert done.exit_code == 2
    assert "-f excludes --kubeconfig and --context" in done.stderr


def test_an_unreadable_slice_is_named_and_the_rest_is_shown(tmp_path):
    broken = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "odd"}, "spec": 7}
    done = told(tmp_path, *fleet(1, 1), broken)
    assert done.exit_code == 0
    assert "warning: not read: ResourceSlice default/odd" in done.stderr
    assert "pool n0" in done.stdout
    assert (
        run_json("matrix", "-f", dump(tmp_path, *fleet(1, 1), broken))[1]["unread"][0]["kind"]
        == "ResourceSlice default/odd"
    )


def test_of_many_kinds_of_pools_a_few_are_shown_and_the_rest_is_counted(tmp_path):
    objects = fleet(30, 1)
    for number, one in enumerate(one for one in objects if one["kind"] == "ResourceSlice"):
        one["spec"]["devices"][0]["name"] = f"gpu-of-{number}"
    for form in ("text", "svg"):
        shown = told(tmp_path, *objects, more=("-o", form)).stdout
        assert "and 22 more pools, of 22 more kinds: choose with --pool or --node, or take -o json" in shown
        assert shown.count("of driver") == 8


def test_beyond_what_may_be_judged_pools_are_named_as_not_judged(tmp_path, monkeypatch):
    monkeypatch.setattr(step_limits, "PAIRS", 5)
    objects = fleet(2, 2)
    objects[-1]["spec"]["devices"][0]["name"] = "other"
    _, found = run_json("matrix", "-f", dump(tmp_path, *objects))
    first, second = found["pools"]
    assert len(first["rows"]) == 1
    assert (second["rows"], second["notes"]) == ([], [matrices.NOT_JUDGED])
    assert matrices.NOT_JUDGED in told(tmp_path, *objects).stdout


def test_five_thousand_nodes_make_one_table(tmp_path):
    done = told(tmp_path, *fleet(5000, 8), held("a", "p", on="n7/gpu-1"))
    assert done.exit_code == 0
    assert done.stdout.startswith("5000 equal pools: n0, n1, n10 and 4997 more")
    assert "1 of 40000 in use" in done.stdout
    assert len(done.stdout.splitlines()) < 20


def two_pools_each(rule_scope="node"):
    """Two nodes with a pool of MIG devices and one of whole ones, and a rule that keeps the two kinds apart."""
    objects = fleet(2, 2)
    for slice_ in [one for one in objects if one["kind"] == "ResourceSlice"]:
        node_name = slice_["spec"]["nodeName"]
        kind = {"kind": {"string": "mig"}}
        slice_["spec"]["devices"] = [{"name": f"mig-{at}", "attributes": kind} for at in range(2)]
        pool = {"name": f"{node_name}-whole", "generation": 1, "resourceSliceCount": 1}
        whole = [{"name": "whole", "attributes": {"kind": {"string": "whole"}}}]
        spec = slice_["spec"] | {"pool": pool, "devices": whole}
        objects.append(slice_ | {"metadata": {"name": f"{node_name}-whole"}, "spec": spec})
    only_mig = f'device.attributes["{DRIVER}"].kind == "mig"'
    spec = {"driver": DRIVER, "selector": only_mig, "compatibleOnlyWith": only_mig, "scope": rule_scope}
    rule = {"apiVersion": "drawbridge.dev/v1alpha1", "kind": "DeviceCompatibility", "metadata": {"name": "mig"}}
    return [*objects, rule | {"spec": spec}]


def test_a_rule_that_holds_across_pools_is_told_of_each_and_equal_pools_stay_one(tmp_path):
    code, found = run_json("matrix", "-f", dump(tmp_path, *two_pools_each()))
    assert code == 0
    notes = {one["pool"]: one["notes"] for one in found["pools"]}
    across = "across the pools of a node: DeviceCompatibility/mig keeps"
    assert notes["n0"] == notes["n1"] == [f"{across} mig-0 apart from whole, for one"]
    assert notes["n0-whole"] == [f"{across} whole apart from mig-0, for one"]
    shown = told(tmp_path, *two_pools_each()).stdout
    assert f"2 equal pools: n0, n1 of driver {DRIVER}" in shown
    assert across not in told(tmp_path, *two_pools_each("pool")).stdout


def hostile():
    """Names that no API server takes, in a file from elsewhere."""
    objects = fleet(1, 2)
    slice_ = objects[-1]
    slice_["spec"]["pool"]["name"] = f"pool-{EVIL}"
    slice_["spec"]["devices"][0]["name"] = f"gpu-{EVIL}"
    claim = held(f"claim-{EVIL}", f"pod-{EVIL}")
    [result] = claim["status"]["allocation"]["devices"]["results"]
    result |= {"pool": slice_["spec"]["pool"]["name"], "device": f"gpu-{EVIL}"}
    return [*objects, claim]


def test_a_picture_is_well_formed_and_runs_nothing_whatever_the_names_are(tmp_path):
    shown = told(tmp_path, *hostile(), more=("-o", "svg")).stdout
    tree = ET.fromstring(shown)
    tags = {one.tag.rpartition("}")[2] for one in tree.iter()}
    assert tags == {"svg", "style", "text", "g", "title", "rect"}
    assert "\x1b" not in shown
    assert any("alert(1)" in (one.text or "") for one in tree.iter())


def test_a_picture_says_what_the_table_says():
    files = modes("classes", "groups")
    _, found = run_json("matrix", *files)
    shown = run("matrix", *files, "-o", "svg").stdout
    cells = [cell for row in found["pools"][0]["rows"] for cell in row["cells"]]
    letters = {None: "✓", "groups": "g", "in use": "1"}
    marks = re.findall(r'<text class="m"[^>]*>(.)</text></g>', shown)
    assert marks == [letters[cell["stage"]] for cell in cells]


def test_the_same_input_makes_the_same_picture():
    files = modes("classes", "groups")
    assert run("matrix", *files, "-o", "svg").stdout == run("matrix", *files, "-o", "svg").stdout
