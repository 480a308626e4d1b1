"""What a thief tries with the tokens of the bridge and of what runs on nodes, on a real API server as it is now and on the oldest Kubernetes that is supported."""

import os
from contextlib import closing
from pathlib import Path

import pytest

from cluster import manifests
from e2e.actors import fleet, workloads
from e2e.actors.client import ApiError, Client
from e2e.actors.workloads import acting_pod, claim, container, pod, using
from e2e.build import CURRENT, KUBERNETES_VERSIONS
from e2e.ground.controlplane import ControlPlane
from tests.cli.running import run

pytestmark = pytest.mark.real
HERE, ELSEWHERE = "stolen-0", "stolen-1"
DRIVER = "stolen.example.com"
GATES = {CURRENT: dict.fromkeys(("DRAResourceClaimGranularStatusAuthorization", "ConstrainedImpersonation"), True)}
OLDEST = pytest.param(min(KUBERNETES_VERSIONS), marks=pytest.mark.kubernetes(min(KUBERNETES_VERSIONS)))
DRIVERS = ("driver", "adapter")
AGENTS = "drawbridge-system-nodes"
RIGHTS = Path(__file__).with_name("rights.txt")


@pytest.fixture(scope="module", params=[CURRENT, OLDEST])
def cluster(request):
    """A control plane with our accounts, their rights and policies, without their processes, and a device on each of two nodes."""
    with ControlPlane(name="stolen", version=request.param, feature_gates=GATES.get(request.param, {})) as running:
        options = [
            f"--{name}" for name in (*DRIVERS, "node-agent", "read-only", "bridge", "apart", "scheduler-image=x")
        ]
        printed = run("manifests", "--image", "x", *options).stdout
        ours = [one.object for one in manifests.parse(printed)]
        wanted = [our for our in ours if our["kind"] not in ("Deployment", "DaemonSet")]
        # Objects and the definitions that they need come in one go: it is asked twice.
        for check in (False, True):
            running.kubectl("apply", "--server-side", "-f", "-", input=manifests.dump(wanted), check=check)
        running.add_fake_nodes(2, prefix="stolen-")
        running.create(fleet.device_class(DRIVER, f"device.driver == '{DRIVER}'"))
        for node in (HERE, ELSEWHERE):
            devices = [fleet.device(f"gpu-{index}", {}) for index in range(16)]
            running.create(*fleet.slices(DRIVER, node, devices, pool=node, by_name=True))
        for account in DRIVERS:
            with thief(running, f"drawbridge-{account}", f"drawbridge-{account}") as client:
                theirs = held(running, f"wait-{account}", ELSEWHERE)
                running.until("the policy is in force", lambda: refusal(client, theirs, said(theirs)), 30)  # noqa: B023
        # From 1.36 on Kubernetes itself refuses first.
        running.refuses = "cannot" if request.param == CURRENT else "-claims"
        yield running


def thief(cluster, account, namespace, node=HERE):
    """A thief with the token of an account of ours as a pod on a node has it; without a node one that is bound to no pod."""
    cluster.until("the account", lambda: cluster.get(f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}"))
    return cluster.acting(
        namespace, account, acting_pod(f"{account}-{node}", namespace, account, nodeName=node) if node else None
    )


def held(cluster, name, node):
    """A claim that has a device of a node, for a pod there, and the pod."""
    wanted = claim(name, "default", workloads.request("gpu", DRIVER))
    user = pod(name, "default", container(), node=node, resourceClaims=[using(name)])
    cluster.create(wanted, user)
    cluster.wait_scheduled("default", name)
    return cluster.read(wanted)


def said(found, **more):
    """What a driver says of the device that a claim has."""
    [result] = found["status"]["allocation"]["devices"]["results"]
    where = {key: result[key] for key in ("driver", "pool", "device")}
    ready = {"type": "Ready", "status": "True", "reason": "Prepared", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}  # fmt: skip
    return {"status": {"devices": [where | {"conditions": [ready]} | more]}}


def refusal(client, found, body, **query):
    """Patch a claim's status for trial; say why that was refused, "" if it was not."""
    try:
        client.patch(f"{client.path_of(found)}/status", body, dryRun="All", **query)
    except ApiError as error:
        return error.message
    return ""


@pytest.fixture(params=DRIVERS)
def account(request):
    return f"drawbridge-{request.param}"


def test_a_drivers_token_tells_what_became_of_its_nodes_devices_and_no_others(cluster, account, request):
    name = f"{account}-{request.node.callspec.id.replace(' ', '-').replace('.', '-')}"
    mine, theirs = held(cluster, f"{name}-mine", HERE), held(cluster, f"{name}-theirs", ELSEWHERE)
    with thief(cluster, account, account) as client:
        assert refusal(client, mine, said(mine)) == ""
        assert cluster.refuses in refusal(client, theirs, said(theirs))
        told = cluster.patch(f"{cluster.path_of(theirs)}/status", said(theirs))
        assert cluster.refuses in refusal(client, told, {"status": {"devices": None}})
        assert cluster.refuses in refusal(client, told, said(told, data={"lie": True}))
    with thief(cluster, account, account, node="") as client:
        assert cluster.refuses in refusal(client, mine, said(mine))


def test_a_drivers_token_neither_gives_devices_nor_takes_them_nor_reserves_them(cluster, account, request):
    name = f"{account}-{request.node.callspec.id.replace(' ', '-').replace('.', '-')}"
    taken = held(cluster, f"{name}-taken", HERE)
    [free] = cluster.create(claim(f"{name}-free", "default", workloads.request("gpu", DRIVER)))
    thiefs = {"resource": "pods", "name": "thief", "uid": "00000000-0000-0000-0000-000000000000"}
    attacks = {
        "gives": (free, {"status": {"allocation": taken["status"]["allocation"]}}),
        "takes": (taken, {"status": {"allocation": None, "reservedFor": None}}),
        "reserves": (taken, {"status": {"reservedFor": [*taken["status"]["reservedFor"], thiefs]}}),
        "ends a reservation": (taken, {"status": {"reservedFor": None}}),
    }
    with thief(cluster, account, account) as client:
        for what, (found, body) in attacks.items():
            assert cluster.refuses in refusal(client, found, body), what


def event(name, about, namespace="default", component="drawbridge-node-agent", instance=HERE):
    involved = {"apiVersion": "v1", "kind": "Node", "name": about} if isinstance(about, str) else about
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": namespace},
        "involvedObject": involved,
        "reason": "DeviceGivenTwice",
        "message": "so it is",
        "type": "Warning",
        "source": {"component": component},
        "reportingComponent": component,
        "reportingInstance": instance,
    }


A_POD = {"apiVersion": "v1", "kind": "Pod", "namespace": "default", "name": "any"}
A_CLAIM = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "namespace": "default", "name": "any"}
LIES = {
    "in the kubelet's name": event("lie", A_POD, component="kubelet"),
    "in another component's name with its own source": event("lie", A_POD) | {"reportingComponent": "kubelet"},
    "in its own name with another source": event("lie", A_POD) | {"source": {"component": "kubelet"}},
    "from another node": event("lie", A_POD, instance=ELSEWHERE),
    "about another node": event("lie", ELSEWHERE),
    "about an object that is not a pod": event("lie", A_CLAIM),
}


def answer(attempt, *arguments):
    """What the API server says to a dry run; "" if it lets it through."""
    try:
        attempt(*arguments, dryRun="All")
    except ApiError as error:
        return error.message
    return ""


def test_an_agents_token_says_what_is_so_in_its_own_name_and_its_nodes(cluster):
    with thief(cluster, "drawbridge-node-agent", AGENTS) as client:
        in_force(cluster, client, LIES["about another node"])
        assert answer(client.create, event("own", HERE)) == ""
        assert answer(client.create, event("own", A_POD)) == ""
        for what, lie in LIES.items():
            assert "drawbridge-node-agent-events" in answer(client.create, lie), what
    with thief(cluster, "drawbridge-node-agent", AGENTS, node="") as client:
        assert "drawbridge-node-agent-events" in answer(client.create, event("own", HERE))


def test_an_agents_token_changes_what_it_has_said_itself_and_no_other_event(cluster):
    mine, kubelets, of_another = cluster.create(
        event("mine", HERE),
        event("kubelets", A_POD, component="kubelet"),
        event("of-another", A_POD, instance=ELSEWHERE),
    )
    with thief(cluster, "drawbridge-node-agent", AGENTS) as client:
        in_force(cluster, client, LIES["about another node"])
        assert answer(client.patch, client.path_of(mine), {"message": "it is over"}) == ""
        taken = {"reportingComponent": "drawbridge-node-agent", "reportingInstance": HERE}
        taken["source"] = {"component": "drawbridge-node-agent"}
        for theirs in (kubelets, of_another):
            for change in ({"message": "it is over"}, taken):
                assert "drawbridge-node-agent-events" in answer(client.patch, client.path_of(theirs), change)
        about = {"involvedObject": A_POD}
        assert "drawbridge-node-agent-events" in answer(client.patch, client.path_of(mine), about)
    cluster.remove(mine, kubelets, of_another)


def test_a_read_only_allocators_token_writes_events_in_its_own_name(cluster):
    [kubelets] = cluster.create(event("kubelets", A_POD, component="kubelet"))
    with thief(cluster, "drawbridge-read-only", "drawbridge-system", node="") as client:
        in_force(cluster, client, LIES["in the kubelet's name"])
        assert answer(client.create, event("own", A_CLAIM, component="drawbridge-read-only")) == ""
        assert "'drawbridge-read-only'" in answer(client.create, LIES["in the kubelet's name"])
        assert "'drawbridge-read-only'" in answer(client.patch, client.path_of(kubelets), {"message": "it is over"})
    cluster.remove(kubelets)


def in_force(cluster, client, lie):
    cluster.until("the policy is in force", lambda: answer(client.create, lie), 30)


def test_the_controllers_token_tells_pods_that_they_were_not_translated_and_an_administrator_what_to_fix(cluster):
    own = event("own", A_POD, component="drawbridge-controller") | {"reason": "FailedTemplateCreation"}
    lies = {
        "in the scheduler's name": own | {"reportingComponent": "default-scheduler"},
        "from another source": own | {"source": {"component": "kubelet"}},
        "of a claim": own | {"involvedObject": A_CLAIM},
        "of a node": own | {"involvedObject": event("x", HERE)["involvedObject"]},
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
    told = needed.pop((OURS, itself["name"]))
    lies |= needed | {"of its Deployment, to pods": told | {"reason": "NotTranslated"}}
    with thief(cluster, "drawbridge-controller", "drawbridge-system", node="") as client:
        in_force(cluster, client, lies["of a node"])
        assert answer(client.create, own) == ""
        misspelt = event("misspelt", A_POD, component="drawbridge-controller") | {"reason": "UnknownResource"}
        assert answer(client.create, misspelt) == ""
        assert answer(client.create, told) == ""
        for what, lie in lies.items():
            assert "drawbridge-events" in answer(client.create, lie), what


# What every account of ours tries

OURS = "drawbridge-system"
ACCOUNTS = {
    **dict.fromkeys(("webhook", "controller", "authority", "allocator", "scheduler", "read-only"), OURS),
    "node-agent": AGENTS,
    **{account: f"drawbridge-{account}" for account in DRIVERS},
}
RBAC, HOOKS, CORE = "/apis/rbac.authorization.k8s.io/v1", "/apis/admissionregistration.k8s.io/v1", "/api/v1/namespaces"
DRA, LEASES = "/apis/resource.k8s.io/v1", "/apis/coordination.k8s.io/v1/namespaces"
EVERYTHING = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
A_SECRET = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "loot", "namespace": OURS}}
OWNER = {"apiVersion": "v1", "kind": "Node", "name": HERE, "uid": "u", "blockOwnerDeletion": True, "controller": True}


def binding(account):
    meta = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "loot"}}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    subject = {"kind": "ServiceAccount", "name": f"drawbridge-{account}", "namespace": ACCOUNTS[account]}
    return meta | {"roleRef": role, "subjects": [subject]}


def escalations(account):
    """What to try, each as a method, a path and a body."""
    request_ = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": "x"}}
    labels = {"metadata": {"labels": {"a": "b"}}}
    kinds = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
    return {
        "reads all Secrets": ("get", "/api/v1/secrets"),
        "reads the authority's key": ("get", f"{CORE}/{OURS}/secrets/drawbridge-authority"),
        "makes a Secret": ("post", f"{CORE}/{OURS}/secrets", A_SECRET),
        "makes a Secret of a drawn name": ("post", f"{CORE}/{OURS}/secrets", A_SECRET | {"metadata": {"generateName": "drawbridge"}}),
        "makes a Secret elsewhere": ("post", f"{CORE}/kube-system/secrets", A_SECRET | {"metadata": {"name": "drawbridge"}}),
        "deletes a Secret": ("delete", f"{CORE}/{OURS}/secrets/drawbridge-signature"),
        "asks for another's token": ("post", f"{CORE}/{OURS}/serviceaccounts/drawbridge-controller/token", request_),
        "asks for a controller's token": ("post", f"{CORE}/kube-system/serviceaccounts/generic-garbage-collector/token", request_),
        "reviews tokens": ("post", "/apis/authentication.k8s.io/v1/tokenreviews", review),
        "changes an account": ("patch", f"{CORE}/{OURS}/serviceaccounts/drawbridge-controller", {"secrets": [{"name": "loot"}]}),
        "widens its role": ("patch", f"{RBAC}/clusterroles/drawbridge-{account}", {"rules": EVERYTHING}),
        "makes itself administrator": ("post", f"{RBAC}/clusterrolebindings", binding(account)),
        **{f"changes {kind} beyond the bundle": ("patch", f"{HOOKS}/{kind}/drawbridge", labels) for kind in kinds},
        **{f"deletes {kind}": ("delete", f"{HOOKS}/{kind}/drawbridge") for kind in kinds},
        "deletes a policy": ("delete", f"{HOOKS}/validatingadmissionpolicies/drawbridge-secrets"),
        "unbinds a policy": ("delete", f"{HOOKS}/validatingadmissionpolicybindings/drawbridge-secrets"),
        "changes a definition": ("patch", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/devicecompatibilities.drawbridge.dev", labels),
        "changes the configuration": ("patch", f"{CORE}/{OURS}/configmaps/drawbridge", {"data": {"drawbridge.yaml": "mode: off"}}),
        "changes a workload": ("patch", f"/apis/apps/v1/namespaces/{OURS}/deployments/drawbridge-webhook", labels),
        "changes a namespace's mode": ("patch", f"{CORE}/default", {"metadata": {"labels": {"drawbridge.dev/mode": "off"}}}),
        "makes a pod": ("post", f"{CORE}/{OURS}/pods", acting_pod("loot", OURS, "drawbridge-controller")),
        "runs a command in a pod": ("post", f"{CORE}/default/pods/any/exec?command=id", {}),
        "adds a container to a pod": ("patch", f"{CORE}/default/pods/any/ephemeralcontainers", {"spec": {}}),
        "labels a node": ("patch", f"/api/v1/nodes/{HERE}", labels),
        "makes a class": ("post", f"{DRA}/deviceclasses", fleet.device_class("loot", "true")),
        "makes slices of another node": ("post", f"{DRA}/resourceslices", fleet.slices("loot.example.com", ELSEWHERE, [], pool=HERE, by_name=True)[0]),
        "takes the scheduler's lease": ("patch", f"{LEASES}/kube-system/leases/kube-scheduler", {"spec": {"holderIdentity": "thief"}}),
        "makes another lease": ("post", f"{LEASES}/{OURS}/leases", lease("loot")),
        "makes a lease that stays": ("post", f"{LEASES}/{OURS}/leases", lease("drawbridge") | {"metadata": {"name": "drawbridge", "finalizers": ["example.com/stay"]}}),
        "makes a lease that blocks its owner": ("post", f"{LEASES}/{OURS}/leases", lease("drawbridge") | {"metadata": {"name": "drawbridge", "ownerReferences": [OWNER]}}),
        "speaks as the kubelet": ("post", f"{CORE}/default/events", event("loot", A_POD, component="kubelet")),
        "changes a kubelet's event": ("patch", f"{CORE}/default/events/of-kubelet", {"message": "no"}),
        "has a certificate signed": ("post", "/apis/certificates.k8s.io/v1/certificatesigningrequests", {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": "loot"}, "spec": {"signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"], "request": "eA=="}}),
        "taints devices": ("post", "/apis/resource.k8s.io/v1beta2/devicetaintrules", {"apiVersion": "resource.k8s.io/v1beta2", "kind": "DeviceTaintRule", "metadata": {"name": "loot"}, "spec": {"taint": {"key": "a", "effect": "NoExecute"}}}),
    }  # fmt: skip


# What Kubernetes' own role for schedulers allows, and rights that the pages name.
MAY = {
    "authority": {"reads the authority's key"},
    "scheduler": {"speaks as the kubelet", "changes a kubelet's event", "reviews tokens"},
}


@pytest.mark.parametrize("account", ACCOUNTS)
def test_no_token_of_ours_becomes_more(cluster, account):
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
                # An older server has no such kind.
                if error.code in {403, 422} or "could not find the requested resource" in error.message:
                    continue
            let_through.add(what)
    assert let_through == MAY.get(account, set())


def test_permissions_of_our_service_accounts_match_the_recorded_list(cluster):
    """As `kubectl auth can-i --list` says it, without what every account may; DRAWBRIDGE_RECORD=1 writes the list anew.

    A scheduler of ours has the role of Kubernetes' own, which differs by version.
    """
    said = []
    for account, namespace in ACCOUNTS.items():
        if account == "scheduler":
            continue
        with thief(cluster, f"drawbridge-{account}", namespace, node="") as client, thief(cluster, "default", namespace, node="") as any_:  # fmt: skip
            said += [f"{account}: {line}" for line in sorted(rights(client, namespace) - rights(any_, namespace))]
    if os.environ.get("DRAWBRIDGE_RECORD"):
        RIGHTS.write_text("\n".join(said) + "\n")
    assert said == RIGHTS.read_text().splitlines()


def rights(client, namespace):
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": namespace}}
    found = client.post("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", body)["status"]
    lines = set()
    for rule in (*found["resourceRules"], *found["nonResourceRules"]):
        what = [",".join(rule.get(part, ())) for part in ("apiGroups", "resources", "resourceNames", "nonResourceURLs")]
        lines.add(" ".join((",".join(rule["verbs"]), *filter(None, what))))
    return lines


# The agent's view of pods


class AsUser(Client):
    """The API server is asked to take the caller for another."""

    user = f"system:node:{HERE}"

    def send(self, method, target, payload, headers):
        return super().send(method, target, payload, headers | {"Impersonate-User": self.user})


def pods_of(client, path="/api/v1/pods", **query):
    """The nodes whose pods an account is shown, with the environment of their containers; "" if none are."""
    try:
        items = client.get(path, **query)["items"]
    except ApiError as error:
        if error.code != 403:
            raise
        return ""
    return {item["spec"]["nodeName"] for item in items}


def unread(client, path):
    """Why an account may not read something."""
    with pytest.raises(ApiError) as refused:
        client.get(path)
    return refused.value.message


def test_an_agents_token_shows_the_pods_of_its_node_and_of_no_other(cluster):
    """From 1.36 on; before, it shows none without the role in manifests/node-agent-pods."""
    secret = [{"name": "PASSWORD", "value": "swordfish"}]
    made = [pod(f"secret-of-{node}", "default", container(env=secret), nodeName=node) for node in (HERE, ELSEWHERE)]
    cluster.create(*made)
    of = {node: {"fieldSelector": f"spec.nodeName={node}"} for node in (HERE, ELSEWHERE)}
    with thief(cluster, "drawbridge-node-agent", AGENTS) as client:
        for query in ({}, *of.values()):
            assert pods_of(client, **query) == ""
        for item in made:
            assert "cannot get" in unread(client, cluster.path_of(item))
        node = AsUser(client.url, client.token, client.ca)
        seen = pods_of(node, **of[HERE])
        assert seen == ({HERE} if cluster.refuses == "cannot" else "")
        for query in ({}, of[ELSEWHERE], {"labelSelector": "a!=b"}):
            assert pods_of(node, **query) == ""
        for path in (
            "/api/v1/secrets",
            "/api/v1/namespaces/default/secrets/any",
            "/api/v1/nodes",
            "/api/v1/configmaps",
        ):
            assert "cannot" in unread(node, path)
        assert "cannot" in answer(node.create, pod("mirror", "default", container(), nodeName=HERE))
        node.user = f"system:node:{ELSEWHERE}"
        for query in of.values():
            assert pods_of(node, **query) == ""
        node.close()
    with thief(cluster, "drawbridge-node-agent", AGENTS, node="") as client:
        node = AsUser(client.url, client.token, client.ca)
        assert pods_of(node, **of[HERE]) == ""
        node.close()
    cluster.remove(*made)


# The allocator, and a scheduler that has its own pod


def lease(name, namespace="drawbridge-system"):
    meta = {"name": name, "namespace": namespace}
    spec = {"holderIdentity": "thief", "leaseDurationSeconds": 1_000_000, "renewTime": "2026-01-01T00:00:00.000000Z"}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec}


@pytest.mark.parametrize("account", ["allocator", "scheduler"])
def test_the_bridges_tokens_write_no_lease_but_the_allocators(cluster, account):
    [schedulers] = cluster.create(lease("kube-scheduler", "kube-system"))
    with thief(cluster, f"drawbridge-{account}", "drawbridge-system", node="") as client:
        in_force(cluster, client, lease("drawbridge"))
        for other in (lease("drawbridge"), lease("kube-controller-manager", "kube-system"), lease("stolen-9", "kube-node-lease")):  # fmt: skip
            # Of the allocator alone RBAC holds the namespace; a scheduler's role is for all of them.
            assert any(
                word in answer(client.create, other) for word in ("drawbridge-allocator-leases", "cannot create")
            )
        said = answer(client.create, lease("drawbridge-allocator"))
        assert said == "" if account == "allocator" else "drawbridge-allocator-leases" in said
        if account == "scheduler":
            taken = schedulers | {"spec": {"holderIdentity": "thief"}}
            assert "drawbridge-allocator-leases" in answer(client.put, client.path_of(schedulers), taken)
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
def test_of_a_pods_status_the_bridges_tokens_write_what_a_scheduler_says(cluster, account):
    claims = [workloads.using_template("gpu")]
    [victim] = cluster.create(pod(f"victim-{account}", "default", container(), nodeName=HERE, resourceClaims=claims))
    gone = {"status": {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "Preempted"}]}}
    waits = {"status": {"conditions": [{"type": "PodScheduled", "status": "False"}]}}
    path = f"{cluster.path_of(victim)}/status"
    with thief(cluster, f"drawbridge-{account}", "drawbridge-system", node="") as client:
        cluster.until("the policy is in force", lambda: answer(client.patch, path, HIJACKS["phase"], "strategic"), 30)
        for what, body in HIJACKS.items():
            assert "drawbridge-allocator-pods" in answer(client.patch, path, body, "strategic"), what
        for body in (gone, waits):
            assert answer(client.patch, path, body, "strategic") == ""
    cluster.remove(victim)


def test_of_a_claims_metadata_the_allocators_token_writes_what_is_its_own(cluster):
    [found] = cluster.create(claim("owned", "default", workloads.request("gpu", DRIVER)))
    path = cluster.path_of(found)
    stay = "resource.kubernetes.io/delete-protection"
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "gone", "uid": "00000000-0000-0000-0000-000000000000"}
    with thief(cluster, "drawbridge-allocator", "drawbridge-system", node="") as client:
        attacks = [
            {"ownerReferences": [owner]},
            {"finalizers": ["example.com/stay"]},
            {"labels": {"a": "b"}},
            {"annotations": {"a": "b"}},
        ]
        cluster.until("the policy is in force", lambda: answer(client.patch, path, {"metadata": attacks[0]}), 30)
        for attack in attacks:
            assert "drawbridge-allocator-claims" in answer(client.patch, path, {"metadata": attack}), attack
        for own in ({"finalizers": [stay]}, {"annotations": {"drawbridge.dev/tried-again": "now"}}):
            assert answer(client.patch, path, {"metadata": own}) == ""
    cluster.remove(found)


def test_a_schedulers_token_writes_no_claim(cluster):
    found = held(cluster, "bridged", HERE)
    path = cluster.path_of(found)
    thiefs = {"resource": "pods", "name": "thief", "uid": "00000000-0000-0000-0000-000000000000"}
    with thief(cluster, "drawbridge-scheduler", "drawbridge-system", node="") as client:
        cluster.until("the policy is in force", lambda: answer(client.delete, path), 30)
        attacks = {
            "deletes": answer(client.delete, path),
            "creates": answer(client.create, claim("new", "default", workloads.request("gpu", DRIVER))),
            "reserves": refusal(client, found, {"status": {"reservedFor": [*found["status"]["reservedFor"], thiefs]}}),
            "frees": refusal(client, found, {"status": {"allocation": None, "reservedFor": None}}),
            "lets go": answer(client.patch, path, {"metadata": {"finalizers": None}}),
        }
    for what, said in attacks.items():
        assert "drawbridge-allocator-claims" in said or "cannot" in said, what
