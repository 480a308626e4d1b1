"""Attacks with the tokens of the bridge and of node components, on the current API server and on that of the oldest supported minor."""

import os
from contextlib import closing
from pathlib import Path

import pytest

from cluster import manifests
from e2e.actors import fleet, workloads
from e2e.actors.client import ApiError
from e2e.actors.workloads import acting_pod, claim, container, pod, using
from e2e.build import CURRENT, KUBERNETES_VERSIONS
from e2e.ground.controlplane import ControlPlane
from e2e.kubernetes.attacks import (
    A_CLAIM,
    A_POD,
    ACCOUNTS,
    AGENTS,
    ALLOWED,
    DRIVERS,
    FORGED_EVENTS,
    OTHER_NODE,
    OURS,
    STOLEN_NODE,
    AsUser,
    dry_run_refusal,
    escalations,
    event,
    lease,
    until_in_force,
)
from tests.cli.running import run_manifests

pytestmark = pytest.mark.real

DRIVER = "stolen.example.com"
GATES = {CURRENT: dict.fromkeys(("DRAResourceClaimGranularStatusAuthorization", "ConstrainedImpersonation"), True)}
OLDEST = pytest.param(min(KUBERNETES_VERSIONS), marks=pytest.mark.kubernetes(min(KUBERNETES_VERSIONS)))
RIGHTS = Path(__file__).with_name("rights.txt")


@pytest.fixture(scope="module", params=[CURRENT, OLDEST])
def cluster(request):
    """A control plane with our accounts, their rights and policies, without their processes, and a device on each of two nodes."""
    with ControlPlane(name="stolen", version=request.param, feature_gates=GATES.get(request.param, {})) as running:
        values = dict.fromkeys((*DRIVERS, "nodeAgent", "readOnly"), True)
        printed = run_manifests("--image", "x", level="bridge", bridge={"schedulerImage": "x"}, **values).stdout
        ours = [document.object for document in manifests.parse(printed)]
        wanted = [our for our in ours if our["kind"] not in ("Deployment", "DaemonSet")]
        # CRDs and their objects are applied together, so apply twice.
        for check in (False, True):
            running.kubectl("apply", "--server-side", "-f", "-", input=manifests.dump(wanted), check=check)
        # A scheduler in a pod of its own has an account of the user's, as in docs/bridge.md.
        running.create(
            {
                "apiVersion": "v1",
                "kind": "ServiceAccount",
                "metadata": {"name": "drawbridge-scheduler", "namespace": OURS},
            },
            *scheduler_bindings("own", "drawbridge-scheduler"),
        )
        running.add_fake_nodes(2, prefix="stolen-")
        running.create(fleet.device_class(DRIVER, f"device.driver == '{DRIVER}'"))
        for node in (STOLEN_NODE, OTHER_NODE):
            devices = [fleet.device(f"gpu-{index}", {}) for index in range(16)]
            running.create(*fleet.slices(DRIVER, node, devices, pool=node, by_name=True))
        for account in DRIVERS:
            with thief(running, f"drawbridge-{account}", f"drawbridge-{account}") as client:
                theirs = held(running, f"wait-{account}", OTHER_NODE)
                running.until("the policy is in force", lambda: refusal(client, theirs, device_status(theirs)), 30)  # noqa: B023
        # From 1.36 on, Kubernetes refuses before our policy.
        running.refuses = "cannot" if request.param == CURRENT else "-claims"
        yield running


def scheduler_bindings(name, account):
    """Bind an account to the roles of kube-scheduler."""
    group = "rbac.authorization.k8s.io"
    return [
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name_},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": OURS}],
        }
        for name_, role in ((name, "system:kube-scheduler"), (f"{name}-volumes", "system:volume-scheduler"))
    ]


def thief(cluster, account, namespace, node=STOLEN_NODE):
    """A client with the token of an account of ours, bound to a pod on a node, or to no pod without a node."""
    cluster.until("the account", lambda: cluster.get(f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}"))
    return cluster.client_of(
        namespace, account, acting_pod(f"{account}-{node}", namespace, account, nodeName=node) if node else None
    )


def held(cluster, name, node):
    """Create a claim, and a pod that uses it on a node; return the allocated claim."""
    wanted = claim(name, "default", workloads.request("gpu", DRIVER))
    user = pod(name, "default", container(), node=node, resourceClaims=[using(name)])
    cluster.create(wanted, user)
    cluster.wait_scheduled("default", name)
    return cluster.read(wanted)


def device_status(claim_, **more):
    """The status that a driver reports for the device of a claim."""
    [result] = claim_["status"]["allocation"]["devices"]["results"]
    where = {key: result[key] for key in ("driver", "pool", "device")}
    ready = {"type": "Ready", "status": "True", "reason": "Prepared", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}  # fmt: skip
    return {"status": {"devices": [where | {"conditions": [ready]} | more]}}


def refusal(client, claim_, body, **query):
    """Patch a claim's status in a dry run; return the refusal, or ""."""
    try:
        client.patch(f"{client.path_of(claim_)}/status", body, dryRun="All", **query)
    except ApiError as error:
        return error.message
    return ""


@pytest.fixture(params=DRIVERS)
def account(request):
    return f"drawbridge-{request.param}"


def test_a_drivers_token_writes_only_status_of_its_nodes_devices(cluster, account, request):
    name = f"{account}-{request.node.callspec.id.replace(' ', '-').replace('.', '-')}"
    mine, theirs = held(cluster, f"{name}-mine", STOLEN_NODE), held(cluster, f"{name}-theirs", OTHER_NODE)
    with thief(cluster, account, account) as client:
        assert refusal(client, mine, device_status(mine)) == ""
        assert cluster.refuses in refusal(client, theirs, device_status(theirs))
        reported = cluster.patch(f"{cluster.path_of(theirs)}/status", device_status(theirs))
        assert cluster.refuses in refusal(client, reported, {"status": {"devices": None}})
        assert cluster.refuses in refusal(client, reported, device_status(reported, data={"lie": True}))
    with thief(cluster, account, account, node="") as client:
        assert cluster.refuses in refusal(client, mine, device_status(mine))


def test_a_drivers_token_cannot_allocate_deallocate_or_reserve(cluster, account, request):
    name = f"{account}-{request.node.callspec.id.replace(' ', '-').replace('.', '-')}"
    taken = held(cluster, f"{name}-taken", STOLEN_NODE)
    [free] = cluster.create(claim(f"{name}-free", "default", workloads.request("gpu", DRIVER)))
    pod_of_thief = {"resource": "pods", "name": "thief", "uid": "00000000-0000-0000-0000-000000000000"}
    attacks = {
        "gives": (free, {"status": {"allocation": taken["status"]["allocation"]}}),
        "takes": (taken, {"status": {"allocation": None, "reservedFor": None}}),
        "reserves": (taken, {"status": {"reservedFor": [*taken["status"]["reservedFor"], pod_of_thief]}}),
        "ends a reservation": (taken, {"status": {"reservedFor": None}}),
    }
    with thief(cluster, account, account) as client:
        for what, (claim_, body) in attacks.items():
            assert cluster.refuses in refusal(client, claim_, body), what


def test_an_agents_token_creates_only_true_events_of_its_node(cluster):
    with thief(cluster, "drawbridge-node-agent", AGENTS) as client:
        until_in_force(cluster, client, FORGED_EVENTS["about another node"])
        assert dry_run_refusal(client.create, event("own", STOLEN_NODE)) == ""
        assert dry_run_refusal(client.create, event("own", A_POD)) == ""
        for what, forged in FORGED_EVENTS.items():
            assert "drawbridge-node-agent-events" in dry_run_refusal(client.create, forged), what
    with thief(cluster, "drawbridge-node-agent", AGENTS, node="") as client:
        assert "drawbridge-node-agent-events" in dry_run_refusal(client.create, event("own", STOLEN_NODE))


def test_an_agents_token_changes_only_its_own_events(cluster):
    mine, kubelets, of_another = cluster.create(
        event("mine", STOLEN_NODE),
        event("kubelets", A_POD, component="kubelet"),
        event("of-another", A_POD, instance=OTHER_NODE),
    )
    with thief(cluster, "drawbridge-node-agent", AGENTS) as client:
        until_in_force(cluster, client, FORGED_EVENTS["about another node"])
        assert dry_run_refusal(client.patch, client.path_of(mine), {"message": "it is over"}) == ""
        taken = {"reportingComponent": "drawbridge-node-agent", "reportingInstance": STOLEN_NODE}
        taken["source"] = {"component": "drawbridge-node-agent"}
        for theirs in (kubelets, of_another):
            for change in ({"message": "it is over"}, taken):
                assert "drawbridge-node-agent-events" in dry_run_refusal(client.patch, client.path_of(theirs), change)
        about = {"involvedObject": A_POD}
        assert "drawbridge-node-agent-events" in dry_run_refusal(client.patch, client.path_of(mine), about)
    cluster.remove(mine, kubelets, of_another)


def test_a_read_only_allocators_token_writes_only_its_own_events(cluster):
    [kubelets] = cluster.create(event("kubelets", A_POD, component="kubelet"))
    with thief(cluster, "drawbridge-read-only", "drawbridge-system", node="") as client:
        until_in_force(cluster, client, FORGED_EVENTS["in the kubelet's name"])
        assert dry_run_refusal(client.create, event("own", A_CLAIM, component="drawbridge-read-only")) == ""
        assert "'drawbridge-read-only'" in dry_run_refusal(client.create, FORGED_EVENTS["in the kubelet's name"])
        assert "'drawbridge-read-only'" in dry_run_refusal(
            client.patch, client.path_of(kubelets), {"message": "it is over"}
        )
    cluster.remove(kubelets)


def test_the_controllers_token_writes_only_events_of_its_two_kinds(cluster):
    """About pods that were not translated, and about its own Deployment for the administrator."""
    own = event("own", A_POD, component="drawbridge-controller") | {"reason": "FailedTemplateCreation"}
    forgeries = {
        "in the scheduler's name": own | {"reportingComponent": "default-scheduler"},
        "from another source": own | {"source": {"component": "kubelet"}},
        "of a claim": own | {"involvedObject": A_CLAIM},
        "of a node": own | {"involvedObject": event("x", STOLEN_NODE)["involvedObject"]},
        "for another reason": own | {"reason": "Evicted"},
        "forever": own | {"metadata": own["metadata"] | {"finalizers": ["example.com/stay"]}},
        "of a pod, to an administrator": own | {"reason": "AdministratorNeeded"},
    }
    itself = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "drawbridge-controller"}
    needed = {}
    for namespace, name in ((OURS, itself["name"]), (OURS, "drawbridge-webhook"), ("default", itself["name"])):
        about = itself | {"namespace": namespace, "name": name}
        needed[namespace, name] = event("needed", about, namespace, "drawbridge-controller") | {
            "reason": "AdministratorNeeded"
        }
    own_kind = needed.pop((OURS, itself["name"]))
    forgeries |= needed | {"of its Deployment, to pods": own_kind | {"reason": "NotTranslated"}}
    with thief(cluster, "drawbridge-controller", "drawbridge-system", node="") as client:
        until_in_force(cluster, client, forgeries["of a node"])
        assert dry_run_refusal(client.create, own) == ""
        misspelt = event("misspelt", A_POD, component="drawbridge-controller") | {"reason": "UnknownResource"}
        assert dry_run_refusal(client.create, misspelt) == ""
        assert dry_run_refusal(client.create, own_kind) == ""
        for what, forged in forgeries.items():
            assert "drawbridge-events" in dry_run_refusal(client.create, forged), what


@pytest.mark.parametrize("account", ACCOUNTS)
def test_no_token_of_ours_can_escalate(cluster, account):
    kubelets = event("of-kubelet", A_POD, component="kubelet")
    if not cluster.read(kubelets):
        cluster.create(kubelets)
    with thief(cluster, f"drawbridge-{account}", ACCOUNTS[account], node="") as client:
        for name in ("admin", f"system:serviceaccount:{OURS}:drawbridge-controller", "system:masters"):
            impostor = AsUser(client.url, client.token, client.ca)
            impostor.user = name
            with closing(impostor), pytest.raises(ApiError, match="cannot impersonate"):
                impostor.get("/api/v1/secrets")
        let_through = set()
        for what, (verb, path, *body) in escalations(account).items():
            try:
                getattr(client, verb)(path, *body, **({} if verb == "get" else {"dryRun": "All"}))
            except ApiError as error:
                # An older server does not have the kind.
                if error.code in {403, 422} or "could not find the requested resource" in error.message:
                    continue
            let_through.add(what)
    assert let_through == ALLOWED.get(account, set())


def test_permissions_of_our_service_accounts_match_the_recorded_list(cluster):
    """The list is that of `kubectl auth can-i --list`, without the rights of every account; DRAWBRIDGE_RECORD=1 records it.

    The roles of kube-scheduler, which differ by version, are taken from the allocator for this test.
    """
    bindings = scheduler_bindings("drawbridge-scheduler", "drawbridge-allocator")
    cluster.remove(*bindings)
    try:
        with thief(cluster, "drawbridge-allocator", OURS, node="") as client:
            cluster.until("the scheduler's roles are gone", lambda: "tokenreviews" not in str(rights(client, OURS)))
        lines = []
        for account, namespace in ACCOUNTS.items():
            if account == "scheduler":
                continue
            with thief(cluster, f"drawbridge-{account}", namespace, node="") as client, thief(cluster, "default", namespace, node="") as any_:  # fmt: skip
                lines += [f"{account}: {line}" for line in sorted(rights(client, namespace) - rights(any_, namespace))]
    finally:
        cluster.create(*bindings)
    if os.environ.get("DRAWBRIDGE_RECORD"):
        RIGHTS.write_text("\n".join(lines) + "\n")
    assert lines == RIGHTS.read_text().splitlines()


def rights(client, namespace):
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": namespace}}
    status = client.post("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", body)["status"]
    lines = set()
    for rule in (*status["resourceRules"], *status["nonResourceRules"]):
        what = [",".join(rule.get(part, ())) for part in ("apiGroups", "resources", "resourceNames", "nonResourceURLs")]
        lines.add(" ".join((",".join(rule["verbs"]), *filter(None, what))))
    return lines


def pods_of(client, path="/api/v1/pods", **query):
    """Return the nodes whose pods an account may list; "" if it may not list them."""
    try:
        items = client.get(path, **query)["items"]
    except ApiError as error:
        if error.code != 403:
            raise
        return ""
    return {item["spec"]["nodeName"] for item in items}


def unread(client, path):
    """Return the API server's refusal of a read."""
    with pytest.raises(ApiError) as refused:
        client.get(path)
    return refused.value.message


def test_an_agents_token_shows_only_pods_of_its_node(cluster):
    """This needs 1.36 or later. Earlier servers show no pods without the role in manifests/node-agent-pods."""
    secret = [{"name": "PASSWORD", "value": "swordfish"}]
    made = [
        pod(f"secret-of-{node}", "default", container(env=secret), nodeName=node) for node in (STOLEN_NODE, OTHER_NODE)
    ]
    cluster.create(*made)
    of = {node: {"fieldSelector": f"spec.nodeName={node}"} for node in (STOLEN_NODE, OTHER_NODE)}
    with thief(cluster, "drawbridge-node-agent", AGENTS) as client:
        for query in ({}, *of.values()):
            assert pods_of(client, **query) == ""
        for item in made:
            assert "cannot get" in unread(client, cluster.path_of(item))
        node = AsUser(client.url, client.token, client.ca)
        seen = pods_of(node, **of[STOLEN_NODE])
        assert seen == ({STOLEN_NODE} if cluster.refuses == "cannot" else "")
        for query in ({}, of[OTHER_NODE], {"labelSelector": "a!=b"}):
            assert pods_of(node, **query) == ""
        for path in ("secrets", "namespaces/default/secrets/any", "nodes", "configmaps"):
            assert "cannot" in unread(node, f"/api/v1/{path}")
        assert "cannot" in dry_run_refusal(node.create, pod("mirror", "default", container(), nodeName=STOLEN_NODE))
        node.user = f"system:node:{OTHER_NODE}"
        for query in of.values():
            assert pods_of(node, **query) == ""
        node.close()
    with thief(cluster, "drawbridge-node-agent", AGENTS, node="") as client:
        node = AsUser(client.url, client.token, client.ca)
        assert pods_of(node, **of[STOLEN_NODE]) == ""
        node.close()
    cluster.remove(*made)


@pytest.mark.parametrize("account", ["allocator", "scheduler"])
def test_the_bridges_tokens_write_no_lease_but_the_allocators(cluster, account):
    [schedulers] = cluster.create(lease("kube-scheduler", "kube-system"))
    with thief(cluster, f"drawbridge-{account}", "drawbridge-system", node="") as client:
        until_in_force(cluster, client, lease("drawbridge"))
        for other in (lease("drawbridge"), lease("kube-controller-manager", "kube-system"), lease("stolen-9", "kube-node-lease")):  # fmt: skip
            # RBAC limits the allocator to the namespace; a scheduler's role is for all namespaces.
            assert any(
                word in dry_run_refusal(client.create, other)
                for word in ("drawbridge-allocator-leases", "cannot create")
            )
        message = dry_run_refusal(client.create, lease("drawbridge-allocator"))
        assert message == "" if account == "allocator" else "drawbridge-allocator-leases" in message
        if account == "scheduler":
            taken = schedulers | {"spec": {"holderIdentity": "thief"}}
            assert "drawbridge-allocator-leases" in dry_run_refusal(client.put, client.path_of(schedulers), taken)
    cluster.remove(schedulers)


HIJACKS = {
    "address": {"status": {"podIP": "10.6.6.6", "podIPs": [{"ip": "10.6.6.6"}]}},
    "readiness": {"status": {"conditions": [{"type": "Ready", "status": "True"}]}},
    "phase": {"status": {"phase": "Succeeded"}},
    "claims": {"status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "theirs"}]}},
    "labels": {"metadata": {"labels": {"app": "theirs"}}},
    "annotations": {"metadata": {"annotations": {"example.com/a": "b"}}},
}


@pytest.mark.parametrize("account", ["allocator", "scheduler"])
def test_the_bridges_tokens_write_only_scheduling_fields_of_pod_status(cluster, account):
    claims = [workloads.using_template("gpu")]
    [victim] = cluster.create(
        pod(f"victim-{account}", "default", container(), nodeName=STOLEN_NODE, resourceClaims=claims)
    )
    gone = {"status": {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "Preempted"}]}}
    waits = {"status": {"conditions": [{"type": "PodScheduled", "status": "False"}]}}
    path = f"{cluster.path_of(victim)}/status"
    with thief(cluster, f"drawbridge-{account}", "drawbridge-system", node="") as client:
        cluster.until(
            "the policy is in force", lambda: dry_run_refusal(client.patch, path, HIJACKS["phase"], "strategic"), 30
        )
        for what, body in HIJACKS.items():
            assert "drawbridge-allocator-pods" in dry_run_refusal(client.patch, path, body, "strategic"), what
        for body in (gone, waits):
            assert dry_run_refusal(client.patch, path, body, "strategic") == ""
    cluster.remove(victim)


def test_the_allocators_token_writes_only_its_own_claim_metadata(cluster):
    [claim_] = cluster.create(claim("owned", "default", workloads.request("gpu", DRIVER)))
    path = cluster.path_of(claim_)
    stay = "resource.kubernetes.io/delete-protection"
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "gone", "uid": "00000000-0000-0000-0000-000000000000"}
    with thief(cluster, "drawbridge-allocator", "drawbridge-system", node="") as client:
        attacks = [
            {"ownerReferences": [owner]},
            {"finalizers": ["example.com/stay"]},
            {"labels": {"a": "b"}},
            {"annotations": {"a": "b"}},
        ]
        cluster.until(
            "the policy is in force", lambda: dry_run_refusal(client.patch, path, {"metadata": attacks[0]}), 30
        )
        for attack in attacks:
            assert "drawbridge-allocator-claims" in dry_run_refusal(client.patch, path, {"metadata": attack}), attack
        assert dry_run_refusal(client.patch, path, {"metadata": {"finalizers": [stay]}}) == ""
    cluster.remove(claim_)


def test_a_schedulers_token_writes_no_claim(cluster):
    claim_ = held(cluster, "bridged", STOLEN_NODE)
    path = cluster.path_of(claim_)
    pod_of_thief = {"resource": "pods", "name": "thief", "uid": "00000000-0000-0000-0000-000000000000"}
    with thief(cluster, "drawbridge-scheduler", "drawbridge-system", node="") as client:
        cluster.until("the policy is in force", lambda: dry_run_refusal(client.delete, path), 30)
        attacks = {
            "deletes": dry_run_refusal(client.delete, path),
            "creates": dry_run_refusal(client.create, claim("new", "default", workloads.request("gpu", DRIVER))),
            "reserves": refusal(
                client, claim_, {"status": {"reservedFor": [*claim_["status"]["reservedFor"], pod_of_thief]}}
            ),
            "frees": refusal(client, claim_, {"status": {"allocation": None, "reservedFor": None}}),
            "lets go": dry_run_refusal(client.patch, path, {"metadata": {"finalizers": None}}),
        }
    for what, message in attacks.items():
        assert "drawbridge-allocator-claims" in message or "cannot" in message, what
