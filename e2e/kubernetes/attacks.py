"""Attacks with the stolen token of an account of ours: escalations that the API server must refuse to every account, and false events."""

from e2e.actors import fleet
from e2e.actors.client import ApiError, Client
from e2e.actors.workloads import acting_pod

STOLEN_NODE, OTHER_NODE = "stolen-0", "stolen-1"
DRIVERS = ("driver", "adapter")
AGENTS = "drawbridge-system-nodes"


def event(name, about, namespace="default", component="drawbridge-node-agent", instance=STOLEN_NODE):
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
FORGED_EVENTS = {
    "in the kubelet's name": event("lie", A_POD, component="kubelet"),
    "in another component's name with its own source": event("lie", A_POD) | {"reportingComponent": "kubelet"},
    "in its own name with another source": event("lie", A_POD) | {"source": {"component": "kubelet"}},
    "from another node": event("lie", A_POD, instance=OTHER_NODE),
    "about another node": event("lie", OTHER_NODE),
    "about an object that is not a pod": event("lie", A_CLAIM),
}


def dry_run_refusal(attempt, *arguments):
    """Return the API server's refusal of a dry run; "" if it accepts it."""
    try:
        attempt(*arguments, dryRun="All")
    except ApiError as error:
        return error.message
    return ""


def until_in_force(cluster, client, forged):
    cluster.until("the policy is in force", lambda: dry_run_refusal(client.create, forged), 30)


# Attempts with every account of ours

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
OWNER = {
    "apiVersion": "v1",
    "kind": "Node",
    "name": STOLEN_NODE,
    "uid": "u",
    "blockOwnerDeletion": True,
    "controller": True,
}


def binding(account):
    meta = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "loot"}}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    subject = {"kind": "ServiceAccount", "name": f"drawbridge-{account}", "namespace": ACCOUNTS[account]}
    return meta | {"roleRef": role, "subjects": [subject]}


def escalations(account):
    """The attempts, each with a method, a path and a body."""
    request_ = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": "x"}}
    labels = {"metadata": {"labels": {"a": "b"}}}
    kinds = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
    return {
        "reads all Secrets": ("get", "/api/v1/secrets"),
        "reads the authority's key": ("get", f"{CORE}/{OURS}/secrets/drawbridge-authority"),
        "makes a Secret": ("post", f"{CORE}/{OURS}/secrets", A_SECRET),
        "makes a Secret with a generated name": ("post", f"{CORE}/{OURS}/secrets", A_SECRET | {"metadata": {"generateName": "drawbridge"}}),
        "makes a Secret in another namespace": ("post", f"{CORE}/kube-system/secrets", A_SECRET | {"metadata": {"name": "drawbridge"}}),
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
        "labels a node": ("patch", f"/api/v1/nodes/{STOLEN_NODE}", labels),
        "makes a class": ("post", f"{DRA}/deviceclasses", fleet.device_class("loot", "true")),
        "makes slices of another node": ("post", f"{DRA}/resourceslices", fleet.slices("loot.example.com", OTHER_NODE, [], pool=STOLEN_NODE, by_name=True)[0]),
        "takes the scheduler's lease": ("patch", f"{LEASES}/kube-system/leases/kube-scheduler", {"spec": {"holderIdentity": "thief"}}),
        "makes another lease": ("post", f"{LEASES}/{OURS}/leases", lease("loot")),
        "makes a lease with a finalizer": ("post", f"{LEASES}/{OURS}/leases", lease("drawbridge") | {"metadata": {"name": "drawbridge", "finalizers": ["example.com/stay"]}}),
        "makes a lease that blocks its owner": ("post", f"{LEASES}/{OURS}/leases", lease("drawbridge") | {"metadata": {"name": "drawbridge", "ownerReferences": [OWNER]}}),
        "speaks as the kubelet": ("post", f"{CORE}/default/events", event("loot", A_POD, component="kubelet")),
        "changes a kubelet's event": ("patch", f"{CORE}/default/events/of-kubelet", {"message": "no"}),
        "has a certificate signed": ("post", "/apis/certificates.k8s.io/v1/certificatesigningrequests", {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": "loot"}, "spec": {"signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"], "request": "eA=="}}),
        "taints devices": ("post", "/apis/resource.k8s.io/v1beta2/devicetaintrules", {"apiVersion": "resource.k8s.io/v1beta2", "kind": "DeviceTaintRule", "metadata": {"name": "loot"}, "spec": {"taint": {"key": "a", "effect": "NoExecute"}}}),
    }  # fmt: skip


# Rights of Kubernetes' own role for schedulers, and rights that the pages name.
ALLOWED = {
    "authority": {"reads the authority's key"},
    "allocator": {"reviews tokens"},
    "scheduler": {"speaks as the kubelet", "changes a kubelet's event", "reviews tokens"},
}


class AsUser(Client):
    """A client that impersonates another user."""

    user = f"system:node:{STOLEN_NODE}"

    def send(self, method, target, payload, headers):
        return super().send(method, target, payload, headers | {"Impersonate-User": self.user})


def lease(name, namespace="drawbridge-system"):
    meta = {"name": name, "namespace": namespace}
    spec = {"holderIdentity": "thief", "leaseDurationSeconds": 1_000_000, "renewTime": "2026-01-01T00:00:00.000000Z"}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec}
