"""`drawbridge simulate --claims`: verdicts, exit codes, the JSON document and remedies."""

import itertools

import pytest

from tests.allocator.fleets import DRIVER, gpu, shared
from tests.cli.commands.fleets import allocated_claim, class_of, node_slice
from tests.cli.running import manifest, modes, run, run_json
from tests.objects import claim, exactly, node

# The modes of a GPU in manifests/examples/modes.
KINDS = ("exclusive", "fractioning", "mps", "mig")
# The pairs of modes in which two claims may share a GPU, as the comment in groups.yaml says.
COMPATIBLE_MODES = {("fractioning", "fractioning"), ("fractioning", "mps"), ("mps", "mps"), ("mig", "mig")}
# By proposal (a way in which an API could express which modes may share a GPU): its files.
PROPOSALS = {
    "groups as Kubernetes reads them": ("groups",),
    "groups as the proposal reads them": ("groups", "reading"),
    "compatibleOnlyWith": ("plain", "expressions"),
}


def answer_about_node(*args):
    """The exit code, and the answer about the node that `--node` names."""
    code, document = run_json("simulate", "--claims", *args)
    [answer] = document["nodes"].values()
    return code, answer


@pytest.fixture
def fleet(tmp_path):
    """A node with two GPUs, and a class."""
    return manifest(tmp_path / "fleet.yaml", node("n0"), node_slice("n0", gpu("gpu-0"), gpu("gpu-1")), class_of("gpu"))


def test_a_claim_that_fits_is_printed_with_its_devices(fleet, tmp_path):
    claims = manifest(tmp_path / "claims.yaml", claim("a", exactly("gpu", count=2)))
    result = run("simulate", "--claims", "-f", fleet, "-f", claims, "--node", "n0")
    assert result.exit_code == 0
    assert "n0: feasible" in result.stdout
    assert f"{DRIVER}/n0/gpu-0" in result.stdout
    assert f"{DRIVER}/n0/gpu-1" in result.stdout


def test_json_has_the_keys_of_the_contract(fleet, tmp_path):
    claims = manifest(tmp_path / "claims.yaml", claim("a", exactly("gpu")))
    code, answer = answer_about_node("-f", fleet, "-f", claims, "--node", "n0")
    assert code == 0
    assert answer.keys() == {
        "verdict", "feasible", "allocations", "reasons", "nearestFits", "error", "steps", "score",
    }  # fmt: skip
    assert (answer["verdict"], answer["feasible"], answer["error"]) == ("feasible", True, None)
    (allocation,) = answer["allocations"]
    assert allocation["claim"] == "default/a"
    assert "allocationTimestamp" not in allocation["allocation"]
    assert allocation["allocation"]["devices"]["results"] == [
        {"request": "r", "driver": DRIVER, "pool": "n0", "device": "gpu-0"}
    ]


def test_allocated_claims_hold_devices_and_pending_claims_request_devices(fleet, tmp_path):
    claims = manifest(
        tmp_path / "claims.yaml", allocated_claim("x", "gpu-0"), claim("b", exactly("gpu")), claim("a", exactly("gpu"))
    )
    code, answer = answer_about_node("-f", fleet, "-f", claims, "--node", "n0")
    assert (code, answer["verdict"]) == (1, "infeasible")
    code, answer = answer_about_node("-f", fleet, "-f", claims, "--node", "n0", "--claim", "default/a")
    assert code == 0
    assert [allocation["claim"] for allocation in answer["allocations"]] == ["default/a"]
    assert answer["allocations"][0]["allocation"]["devices"]["results"][0]["device"] == "gpu-1"


def test_a_refusal_names_the_holders(fleet, tmp_path):
    claims = manifest(
        tmp_path / "claims.yaml",
        allocated_claim("x", "gpu-0"),
        allocated_claim("y", "gpu-1"),
        claim("a", exactly("gpu")),
    )
    result = run("simulate", "--claims", "-f", fleet, "-f", claims, "--node", "n0")
    assert result.exit_code == 1
    assert "in use" in result.stdout
    assert "held by claim default/x" in result.stdout
    assert "would fit" not in result.stdout, "nothing has to change, because the claims fit once devices are free"


def test_a_refusal_for_capacity_names_the_available_amount(tmp_path):
    objects = [
        node("n0"),
        node_slice("n0", shared("gpu-0", "80Gi"), shared("gpu-1", "80Gi")),
        class_of("gpu"),
        allocated_claim("x", "gpu-0", shareID="s", consumedCapacity={"memory": "18Gi"}),
        allocated_claim("y", "gpu-1", shareID="t", consumedCapacity={"memory": "40Gi"}),
    ]
    small, large = claim("a", exactly("gpu", memory="80Gi")), claim("a", exactly("gpu", memory="100Gi"))
    _, answer = answer_about_node("-f", manifest(tmp_path / "large.yaml", *objects, large), "--node", "n0")
    hints = {hint["kind"]: hint for hint in answer["nearestFits"]}
    assert hints["amount"]["value"] == "memory=80Gi"
    assert hints["split"]["value"] == "2 x memory=50Gi"
    code, answer = answer_about_node("-f", manifest(tmp_path / "small.yaml", *objects, small), "--node", "n0")
    assert (code, answer["nearestFits"]) == (1, [])
    (reason,) = [reason for reason in answer["reasons"] if reason["stage"] == "capacity"]
    assert (reason["rejected"], reason["total"], reason["claim"], reason["request"]) == (2, 2, "default/a", "r")
    assert any("62Gi of 80Gi left (held by claim default/x)" in example for example in reason["examples"])


@pytest.mark.parametrize("files", PROPOSALS.values(), ids=PROPOSALS)
@pytest.mark.parametrize("pair", list(itertools.combinations_with_replacement(KINDS, 2)), ids="-".join)
def test_two_modes_share_a_gpu_only_if_they_are_compatible(files, pair):
    first, second = pair
    second = f"{second}-too" if first == second else second  # another claim of the same mode
    code, answer = answer_about_node(
        *modes("classes", "claims", *files), "--node", "gpu-node", "--claim", first, "--claim", second
    )
    is_compatible = tuple(sorted(pair)) in COMPATIBLE_MODES
    assert (code, answer["verdict"]) == ((0, "feasible") if is_compatible else (1, "infeasible"))
    if not is_compatible:
        last_reason = answer["reasons"][-1]
        message = f"{last_reason['text']} {last_reason['examples']}"
        assert last_reason["stage"] in ("groups", "compatibility", "counters", "in use")
        assert "gpu-0-" in message, "the device in the way is not named"


def test_each_rejection_names_the_rule_of_its_proposal():
    reasons = {}
    for name, files in PROPOSALS.items():
        _, answer = answer_about_node(
            *modes("classes", "claims", *files),
            "--node",
            "gpu-node",
            "--claim",
            "mps",
            "--claim",
            "exclusive",
        )
        reasons[name] = answer["reasons"][-1]["stage"], answer["reasons"][-1]["text"]
    assert reasons["groups as Kubernetes reads them"][0] == "groups"
    assert reasons["groups as the proposal reads them"][0] == "counters"
    stage, text = reasons["compatibleOnlyWith"]
    assert stage == "compatibility"
    assert "DeviceCompatibility/gpu-" in text


def test_with_counters_alone_mig_and_mps_share_a_gpu():
    code, _ = answer_about_node(
        *modes("classes", "claims", "plain"), "--node", "gpu-node", "--claim", "mps", "--claim", "mig"
    )
    assert code == 0


def test_every_node_has_an_answer_without_the_node_option(tmp_path):
    objects = [
        node("n0"), node("n1"), node_slice("n0", gpu("gpu-0")), node_slice("n1", gpu("gpu-0")), class_of("gpu"),
        allocated_claim("x", "gpu-0"), claim("a", exactly("gpu")),
    ]  # fmt: skip
    fleet = manifest(tmp_path / "all.yaml", *objects)
    code, answer = run_json("simulate", "--claims", "-f", fleet)
    assert code == 0
    assert {name: verdict["verdict"] for name, verdict in answer["nodes"].items()} == {
        "n0": "infeasible",
        "n1": "feasible",
    }
    text = run("simulate", "--claims", "-f", fleet).stdout
    assert text.splitlines()[0] == "1 of 2 nodes can serve this"
    assert text.index("n1: feasible") < text.index("n0: infeasible")


def test_nodes_with_the_same_refusal_are_grouped(tmp_path):
    nodes = [f"n{i}" for i in range(5)]
    objects = [*map(node, nodes), *(node_slice(name, gpu("gpu-0")) for name in nodes), class_of("gpu")]
    objects.append(claim("a", exactly("gpu", count=2)))
    result = run("simulate", "--claims", "-f", manifest(tmp_path / "all.yaml", *objects))
    assert result.exit_code == 1
    assert result.stdout.count("infeasible") == 1
    assert "and 4 like it" in result.stdout


@pytest.mark.parametrize(
    ("existing_class", "message"),
    [
        (class_of("gpu", "device.nonsense"), "nonsense"),
        (class_of("other"), "DeviceClass/gpu does not exist"),
    ],
)
def test_an_error_of_the_in_tree_allocator_exits_with_2(tmp_path, existing_class, message):
    objects = [node("n0"), node_slice("n0", gpu("gpu-0")), existing_class, claim("a", exactly("gpu"))]
    code, answer = answer_about_node("-f", manifest(tmp_path / "all.yaml", *objects), "--node", "n0")
    assert (code, answer["verdict"]) == (2, "error")
    assert message in answer["error"]


def test_an_exhausted_budget_exits_with_3(tmp_path):
    # Eight devices to fill exactly with 31 sizes: no solver does that in a millisecond.
    sizes = [97 + 13 * i + i * i for i in range(31)]
    devices = [shared(f"gpu-{i}", f"{-(-sum(sizes) // 8)}Mi") for i in range(8)]
    large_claim = claim("a", *(exactly("gpu", name=f"r{i:02}", memory=f"{size}Mi") for i, size in enumerate(sizes)))
    fleet = manifest(tmp_path / "all.yaml", node("n0"), node_slice("n0", *devices), class_of("gpu"), large_claim)
    code, answer = answer_about_node("-f", fleet, "--node", "n0", "--budget-ms", "1")
    assert (code, answer["verdict"]) == (3, "undecided")
    assert "--budget-ms" in run("simulate", "--claims", "-f", fleet, "--node", "n0", "--budget-ms", "1").stdout


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--claims", "--node", "missing"), "there is no node 'missing'"),
        (("--node", "n0"), "--node applies to claims (add --claims, or --claim NS/NAME)"),
        (("--claim", "default/none"), "no ResourceClaim default/none"),
        (("--claim", "x"), "already allocated"),
    ],
)
def test_invalid_arguments_exit_with_2(fleet, tmp_path, args, message):
    claims = manifest(tmp_path / "claims.yaml", allocated_claim("x", "gpu-0"), claim("a", exactly("gpu")))
    result = run("simulate", "-f", fleet, "-f", claims, *args)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stdout == ""


def test_the_claim_option_implies_the_claims_option(fleet, tmp_path):
    claims = manifest(tmp_path / "claims.yaml", claim("a", exactly("gpu")), claim("b", exactly("gpu", count=3)))
    code, answer = run_json("simulate", "-f", fleet, "-f", claims, "--claim", "a")
    assert (code, list(answer["nodes"])) == (0, ["n0"])


def test_nodes_added_to_the_fleet_get_an_answer(fleet, tmp_path):
    claims = manifest(tmp_path / "claims.yaml", claim("a", exactly("gpu")))
    _, answer = run_json("simulate", "-f", fleet, "-f", claims, "--claims", "--add-nodes", "n0=2")
    assert len(answer["nodes"]) == 3  # n0 and two nodes like it
    assert {verdict["verdict"] for verdict in answer["nodes"].values()} == {"feasible"}


def test_an_input_without_claims_has_nothing_to_allocate(fleet):
    result = run("simulate", "--claims", "-f", fleet, "--node", "n0")
    assert result.exit_code == 0
    assert "nothing to allocate" in result.stdout


def test_the_strategy_chooses_the_devices(tmp_path):
    gpus = [gpu(f"gpu-{number}", root=f"r{number % 2}") for number in range(4)]
    objects = [node("n0"), node_slice("n0", *gpus), class_of("gpu"), claim("a", exactly("gpu", count=2))]
    fleet = manifest(tmp_path / "all.yaml", *objects)
    devices_by_strategy = {}
    for strategy in ("first-fit", "topology"):
        _, answer = answer_about_node("-f", fleet, "--node", "n0", "--strategy", strategy)
        results = answer["allocations"][0]["allocation"]["devices"]["results"]
        devices_by_strategy[strategy] = [result["device"] for result in results]
    assert devices_by_strategy == {"first-fit": ["gpu-0", "gpu-1"], "topology": ["gpu-0", "gpu-2"]}


def test_a_strategy_lists_the_best_node_first_with_its_score(tmp_path):
    objects = [
        node("n0"), node("n1"), node_slice("n0", gpu("gpu-0"), gpu("gpu-1")), node_slice("n1", gpu("gpu-0"), gpu("gpu-1")),
        class_of("gpu"), allocated_claim("x", "gpu-0", "n1"), claim("a", exactly("gpu")),
    ]  # fmt: skip
    fleet = manifest(tmp_path / "all.yaml", *objects)
    _, answer = run_json("simulate", "--claims", "-f", fleet, "--strategy", "CompactFirst")
    assert {name: verdict["score"] for name, verdict in answer["nodes"].items()} == {"n0": 50.0, "n1": 100.0}
    text = run("simulate", "--claims", "-f", fleet, "--strategy", "CompactFirst").stdout
    assert text.index("n1: feasible  (score 100)") < text.index("n0: feasible  (score 50)")
    _, answer = run_json("simulate", "--claims", "-f", fleet, "--strategy", "CompactFirst", "--node", "n1")
    assert {name: verdict["score"] for name, verdict in answer["nodes"].items()} == {"n1": 100.0}


def test_a_large_fleet_is_not_listed_node_by_node(tmp_path):
    nodes = [f"n{i:03}" for i in range(40)]
    objects = [
        *map(node, nodes),
        *(node_slice(name, gpu("gpu-0")) for name in nodes),
        class_of("gpu"),
        claim("a", exactly("gpu")),
    ]
    text = run("simulate", "--claims", "-f", manifest(tmp_path / "all.yaml", *objects)).stdout
    assert text.count(": feasible") == 6
    assert "and 34 more nodes that fit: n006" in text


def test_a_warning_reports_an_input_without_unallocated_claims(tmp_path):
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}}
    result = run("simulate", "--claims", "-f", manifest(tmp_path / "p.yaml", node("n"), pod))
    assert result.exit_code == 0
    assert "no unallocated claim in the input; without --claims this command schedules pods" in result.stderr


def test_an_input_without_nodes_exits_with_2(tmp_path):
    (tmp_path / "empty.yaml").write_text("apiVersion: v1\nkind: List\nitems: []\n")
    result = run("simulate", "--claims", "-f", tmp_path / "empty.yaml")
    assert result.exit_code == 2
    assert "no Node" in result.stderr
