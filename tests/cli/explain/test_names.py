"""How `drawbridge explain` finds an object by its name and suggests similar names. Hostile names are printed harmlessly."""

import pytest

from tests.cli.explain.scenes import (
    DRIVER,
    claim,
    explain,
    explain_json,
    fleet,
    full_fleet,
    held_claim,
    in_phase,
    pod,
)
from tests.cli.running import run, run_json

HOSTILE_TEXT = "\x1b[31mred\x1b]0;title\x07\u202e<script>alert(1)</script>"


def in_namespace(obj, namespace):
    return obj | {"metadata": obj["metadata"] | {"namespace": namespace}}


def test_explain_without_arguments_prints_help():
    result = run("explain")
    assert result.exit_code == 0
    assert "pod|claim|device|WORKLOAD NAME" in result.stdout


@pytest.mark.parametrize("name", ["n1-pod", "ml/n1-pod", f"{DRIVER}/n0/gpu-0"])
def test_names_as_free_prints_them_are_found(name, tmp_path):
    running = in_phase(in_namespace(pod("n1-pod", nodeName="n1"), "ml"), "Running")
    headline = explain(tmp_path, name, *fleet(), running).stdout.splitlines()[0]
    assert headline.startswith("device " if "gpu" in name else "pod ml/n1-pod: Running")


@pytest.mark.parametrize("kind", ["pod", "pods", "po", "claim", "resourceclaims", "device", "devices"])
def test_a_kind_without_a_name_exits_with_2(kind):
    result = run("explain", kind)
    assert result.exit_code == 2
    assert "takes one name" in result.stderr


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("pod", "a/b", "-n", "c", "-f", "x"), "contradict"),
        (("pod", "a", "-f", "x", "--context", "y"), "-f excludes --kubeconfig and --context"),
        (("R001", "-f", "x"), "codes exclude options"),
        (("-o", "markdown"), "nothing to explain is given"),
        (("pdo", "a"), "drawbridge explain po a"),
        (("deplyment", "a", "-f", "x"), "drawbridge explain deployment a"),
        (("zzz", "--context", "y"), "drawbridge explain KIND/NAME"),
        (("pod", "a", "b", "-f", "x"), "takes one name"),
    ],
)
def test_invalid_explain_arguments_exit_with_2_and_a_remedy(args, message):
    result = run("explain", *args)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


def test_an_unreachable_cluster_exits_with_3(tmp_path):
    code, answer = run_json("explain", "pod", "p", "--kubeconfig", tmp_path / "nowhere")
    assert code == 3
    assert "name a kubeconfig" in answer["errors"][0]["remedy"]


TWO_PODS_NAMED_WEB = [in_namespace(pod("web"), "a"), in_namespace(pod("web"), "b")]
FLEET_WITH_TWO_PODS_NAMED_WEB = [
    *fleet(),
    *TWO_PODS_NAMED_WEB,
    pod("worker-1"),
    claim("gpu-claim"),
    pod("trainer-1"),
    in_namespace(pod("trainer-2"), "a"),
]
UNRESOLVED_NAMES = {
    "misspelt pod": ("pod wrker-1", "did you mean default/worker-1?"),
    "pod of another namespace": ("pod worker-1 -n a", "did you mean default/worker-1?"),
    "similar pod of this namespace, pod of another one": ("pod trainer-1 -n a", "did you mean a/trainer-2?"),
    "two pods of that name": ("pod web", "2 pods are called 'web': a/web, b/web"),
    "misspelt claim": ("claim gpu-clam", "did you mean default/gpu-claim?"),
    "misspelt claim with a namespace": ("claim default/gpu-clam", "did you mean default/gpu-claim?"),
    "two devices of that name": ("device gpu-0", f"2 devices are called 'gpu-0': {DRIVER}/n0/gpu-0, {DRIVER}/n1/gpu-0"),
    "misspelt device": ("device n0/gqu-0", f"did you mean {DRIVER}/n0/gpu-0?"),
    "no similar name": ("device zzz", f"there are: {DRIVER}/n0/gpu-0"),
}


@pytest.mark.parametrize("case", UNRESOLVED_NAMES)
def test_an_unknown_or_ambiguous_name_leads_to_suggestions(case, tmp_path):
    arguments, message = UNRESOLVED_NAMES[case]
    result = explain(tmp_path, arguments, *FLEET_WITH_TWO_PODS_NAMED_WEB)
    assert (result.exit_code, result.stdout) == (1, "")
    assert message in result.stderr
    code, answer = explain_json(tmp_path, arguments, *FLEET_WITH_TWO_PODS_NAMED_WEB)
    assert code == 1
    [error] = answer["errors"]
    assert message in f"{error['message']} ({error['remedy']})"


@pytest.mark.parametrize("name", ["web -n b", "b/web", "b/web -n b"])
def test_a_namespace_selects_one_of_two_namesakes(name, tmp_path):
    code, answer = explain_json(tmp_path, f"pod {name}", *FLEET_WITH_TWO_PODS_NAMED_WEB)
    assert (code, answer["pod"]["name"]) == (0, "b/web")


@pytest.mark.parametrize("arguments", ["pod/worker-1", "po/default/worker-1", "claim/gpu-claim"])
def test_kind_and_name_may_be_joined_by_a_slash(arguments, tmp_path):
    code, _ = explain_json(tmp_path, arguments, *FLEET_WITH_TWO_PODS_NAMED_WEB)
    assert code == 0


@pytest.mark.parametrize("name", ["n1/gpu-1", f"{DRIVER}/n1/gpu-1"])
def test_a_device_is_found_by_its_names_unambiguous_end(name, tmp_path):
    code, answer = explain_json(tmp_path, f"device {name}", *fleet())
    assert (code, answer["device"]["name"]) == (0, f"{DRIVER}/n1/gpu-1")


def test_names_are_printed_without_control_characters(tmp_path):
    condition = {"type": HOSTILE_TEXT, "status": "False", "message": HOSTILE_TEXT}
    hostile_pod = pod("p", "c") | {"status": {"phase": HOSTILE_TEXT, "conditions": [condition]}}
    hostile_pod["spec"]["schedulerName"] = HOSTILE_TEXT
    hostile_claim = held_claim("c", HOSTILE_TEXT)
    hostile_claim["metadata"]["deletionTimestamp"] = HOSTILE_TEXT
    for arguments in ("pod p", "claim c", "device n0/gpu-0"):
        result = explain(tmp_path, arguments, *full_fleet("c0"), hostile_claim, hostile_pod)
        assert result.exit_code == 0
        assert "\\x1b[31mred" in result.stdout
        assert not {"\x1b", "\x07", "\u202e"} & set(result.stdout)
    unknown = explain(tmp_path, "pod q", *fleet(), in_namespace(pod(HOSTILE_TEXT), "default"))
    assert unknown.exit_code == 1
    assert "\x1b" not in unknown.stderr


def test_the_text_names_only_three_of_300_nodes(tmp_path):
    objects = [*fleet(300, 2)]
    for i in range(300):
        objects += [held_claim(f"c{i}-{number}", f"p{i}", on=f"n{i}/gpu-{number}") for number in range(2)]
        objects.append(in_phase(pod(f"p{i}", nodeName=f"n{i}"), "Running"))
    result = explain(tmp_path, "pod w", *objects, claim("w", 2), pod("w", "w"))
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) < 40
    assert "300 nodes cannot serve it: n0, n1, n10 and 297 more" in result.stdout
    _, answer = explain_json(tmp_path, "pod w", *objects, claim("w", 2), pod("w", "w"))
    assert len(answer["pod"]["prospect"]["groups"][0]["nodes"]) == 300


def test_the_text_of_a_large_pod_is_bounded(tmp_path):
    claim_names = [f"e{number}" for number in range(300)]
    large_pod = pod("p", *claim_names)
    claims = [held_claim(name, *(f"q{number}" for number in range(250))) for name in claim_names]
    result = explain(tmp_path, "pod p", *fleet(), *claims, large_pod)
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) < 600
    assert "and 288 more claims, in -o json" in result.stdout


def test_explain_describes_codes_of_findings():
    code, answer = run_json("explain", "d207", "R001")
    assert code == 0
    assert [finding["code"] for finding in answer["codes"]] == ["D207", "R001"]
    assert [bool(code["withoutDrawbridge"]) for code in answer["codes"]] == [False, True]
    assert "without drawbridge: the API server refuses the pod" in run("explain", "R001").stdout
    assert "without drawbridge" not in run("explain", "D207").stdout
    assert len(run_json("explain", "all")[1]["codes"]) > 50
    assert run("explain", "D999").exit_code == 2


@pytest.mark.parametrize("arguments", [("node", "n1"), ("node/n1",), ("nodes", "n1")])
def test_explaining_a_node_suggests_drawbridge_free(arguments):
    result = run("explain", *arguments)
    assert result.exit_code == 2
    assert "`drawbridge free n1`" in result.stderr
