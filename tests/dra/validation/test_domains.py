"""ComputeDomains: channels without a domain, names of templates, and the number of nodes."""

import json

import pytest

from dra.objects import ResourceClaim
from dra.validation.fleet.domains import ComputeDomains, channel_problems, domain_problems
from dra.wire import convert
from tests.dra.validation.driver_parameters import UID, typed
from tests.dra.validation.manifests import codes, codes_and_paths, join, messages
from tests.loops import every
from tests.objects import claim, claim_template, container, exactly, obj, owner, pod, workload

DRIVER = "compute-domain.nvidia.com"
CHANNEL = "compute-domain-default-channel.nvidia.com"
NODES_FINDING = ("D711", "/spec/numNodes")
TEMPLATE_FINDING = ("D711", "/spec/channel/resourceClaimTemplate/name")


def domain(name="d", *, template="channel", nodes=None, namespace="ns", uid=""):
    spec = {"channel": {"resourceClaimTemplate": {"name": template}}} | ({} if nodes is None else {"numNodes": nodes})
    return json.dumps(obj("ComputeDomain", name, "resource.nvidia.com/v1beta1", namespace=namespace, uid=uid, **spec))


def configs(*parameters):
    return [{"opaque": {"driver": DRIVER, "parameters": parameter}} for parameter in parameters]


def channel_claim(*parameters, namespace="ns", class_name=CHANNEL):
    return json.dumps(claim("c", exactly(class_name), namespace=namespace, config=configs(*parameters)))


def channel_template(name="channel", namespace="ns", uid=""):
    template = claim_template(name, exactly(CHANNEL), namespace=namespace, config=configs(channel()), uid=uid)
    return json.dumps(template)


def channel(uid=UID):
    return typed("ComputeDomainChannelConfig", domainID=uid)


def pod_spec(name="channel"):
    claims = [{"name": "imex", "resourceClaimTemplateName": name}]
    return {"containers": [container(claims=["imex"])], "resourceClaims": claims}


def workload_of(
    count=None, *, kind="Deployment", name="w", field="replicas", template="channel", namespace="ns", owned_by=None
):
    """Return a workload whose pods get claims of a template; `owned_by` is the kind and name of the workload's owner."""
    fields = {"ownerReferences": [owner(*owned_by)]} if owned_by else {}
    fields |= {field: count} if count is not None else {}
    api = "batch/v1" if kind == "Job" else "apps/v1"
    return json.dumps(workload(kind, name, pod_spec(template), api, labels={"a": "b"}, namespace=namespace, **fields))


def channel_pod(name="p", *, owned_by=None):
    return json.dumps(pod(name, namespace="ns", ownerReferences=[owner(*owned_by)] if owned_by else [], **pod_spec()))


def domain_findings(*texts):
    return {finding for finding in codes_and_paths(join(*texts)) if finding[0] in ("D206", "D710", "D711")}


# The domain to which a channel belongs


def test_a_channel_without_a_domain_is_reported():
    assert codes_and_paths(channel_claim()) == {("D710", "/spec/devices/requests/0")}
    daemon = channel_claim(channel(), class_name="compute-domain-daemon.nvidia.com")
    assert codes_and_paths(daemon) == {("D710", "/spec/devices/requests/0")}
    assert not codes_and_paths(channel_claim(channel()))
    assert not codes_and_paths(channel_claim(class_name="other.example.com"))


def test_a_class_may_configure_its_channels():
    config = [{"opaque": {"driver": DRIVER, "parameters": channel()}}]
    class_ = json.dumps({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": CHANNEL}, "spec": {"config": config}})  # fmt: skip
    assert not codes_and_paths(join(channel_claim(), class_))


def test_a_channel_entry_must_have_the_uid_of_its_domain():
    finding = ("D710", "/spec/devices/config/0/opaque/parameters/domainID")
    assert not domain_findings(channel_claim(channel()), domain(uid=UID))
    assert domain_findings(channel_claim(channel()), domain()) == {finding}
    assert domain_findings(channel_claim(channel()), domain(uid=UID.replace("6f", "7f"))) == {finding}
    assert "let the pods use the template that the ComputeDomain creates: channel" in " ".join(
        messages(join(channel_claim(channel()), domain()))
    )
    # The driver refuses a claim in another namespace than the domain. Other domains in other namespaces do not matter.
    assert domain_findings(channel_claim(channel(), namespace="other"), domain(uid=UID)) == {finding}
    assert not domain_findings(channel_claim(channel(), namespace="other"), domain())
    assert not domain_findings(channel_claim(channel()))
    # The driver creates the claims for its daemons in the driver's namespace.
    daemon = typed("ComputeDomainDaemonConfig", domainID=UID)
    daemon_claim = channel_claim(daemon, namespace="driver", class_name="compute-domain-daemon.nvidia.com")
    assert not domain_findings(daemon_claim, domain(uid=UID))


def test_the_template_of_a_domain_may_be_absent():
    assert not domain_findings(domain(), workload_of(2))
    assert "D206" in codes(join(domain(template="other"), channel_template("unrelated"), workload_of(2)))
    assert "D206" not in codes(join(domain(), channel_template("unrelated"), workload_of(2)))
    in_other_namespace = join(domain(namespace="far"), channel_template("unrelated"), workload_of(2))
    assert "it exists in namespace far" in " ".join(messages(in_other_namespace))


# Templates and workloads in the input of a domain


def test_two_domains_cannot_make_one_template():
    assert domain_findings(domain(), domain("e")) == {TEMPLATE_FINDING}
    assert not domain_findings(domain(), domain("e", template="other"))
    assert not domain_findings(domain(), domain("e", namespace="other"))


def test_a_handwritten_template_conflicts_with_that_of_the_domain():
    assert domain_findings(domain(), channel_template()) >= {TEMPLATE_FINDING}
    assert TEMPLATE_FINDING in domain_findings(domain(uid=UID), channel_template())
    assert not domain_findings(domain(uid=UID), channel_template(uid="1"))  # created by the driver in a cluster
    assert TEMPLATE_FINDING not in domain_findings(domain(), channel_template(namespace="other"))


@every(
    "texts",
    [
        [workload_of(4)],
        [workload_of(3), channel_pod()],
        [workload_of(4, kind="Job", field="parallelism")],
        [workload_of(1, name="a"), workload_of(3, name="b", kind="StatefulSet")],
        [workload_of(4), workload_of(4, kind="ReplicaSet", name="r", owned_by=("Deployment", "w")), channel_pod(owned_by=("ReplicaSet", "r"))],
        [workload_of(3), channel_pod(owned_by=("JobSet", "away"))],
        [workload_of(2), workload_of(kind="DaemonSet", name="daemons")],
        [workload_of(4), workload_of(9, template="other", name="channel")],
        [workload_of(3), workload_of(9, template="other", name="o")],
        [workload_of(4), workload_of(9, namespace="other")],
        [json.dumps({"apiVersion": "jobset.x-k8s.io/v1", "kind": "JobSet", "metadata": {"name": "j", "namespace": "ns"}, "spec": {"of": pod_spec()}}), workload_of(1)],
        [],
    ],
)  # fmt: skip
def test_a_domain_with_enough_nodes_has_no_finding(texts):
    # In this case alone, three pods use the template of the domain.
    node_count = 3 if workload_of(9, template="other", name="o") in texts else 4
    assert NODES_FINDING not in domain_findings(domain(nodes=node_count), *texts)


@pytest.mark.parametrize(
    ("texts", "pods"),
    [([workload_of(3)], 3), ([workload_of()], 1), ([workload_of(5)], 5), ([workload_of(4), channel_pod()], 5)],
)
def test_a_domain_with_the_wrong_number_of_nodes_is_reported(texts, pods):
    all_texts = join(domain(nodes=4), *texts)
    assert NODES_FINDING in codes_and_paths(all_texts)
    assert f"write numNodes: {pods}, or leave numNodes out" in " ".join(messages(all_texts))
    assert NODES_FINDING not in codes_and_paths(join(domain(nodes=0), *texts))
    assert NODES_FINDING not in codes_and_paths(join(domain(), *texts))


MANY = 20_000


@pytest.mark.long
@pytest.mark.parametrize(
    "objects",
    [
        lambda: [domain(f"d{n}", nodes=1) for n in range(MANY)],
        lambda: [
            *(domain(f"d{n}", template=f"t{n}", nodes=1) for n in range(MANY // 2)),
            *([workload_of(2, template="t1")] * (MANY // 2)),
        ],
        lambda: [domain(nodes=1), *(channel_pod(f"p{n}") for n in range(MANY))],
        lambda: [text for n in range(MANY // 3) for text in (domain(f"d{n}", nodes=1), channel_pod(f"p{n}"))],
        lambda: [
            *(domain(f"d{n}", uid=f"u{n}") for n in range(MANY // 2)),
            *([channel_claim(channel("u7"))] * (MANY // 2)),
        ],
    ],
    ids=[
        "domains of one template",
        "domains and workloads",
        "a domain and pods",
        "domains of one template and pods",
        "domains and claims",
    ],
)
def test_very_many_domains_are_judged(objects):
    values = [json.loads(text) for text in objects()]
    domains = ComputeDomains(values)
    problems = [problem for _, problem in domain_problems(values, domains)]
    for value in values:
        if value["kind"] == "ResourceClaim":
            typed_claim = convert(value, ResourceClaim)
            problems += channel_problems(typed_claim.spec.devices, "", "other", domains)
    assert {problem.code for problem in problems} <= {"D710", "D711"}
    assert problems


@pytest.mark.parametrize(
    "spec",
    [
        None,
        [],
        "text",
        {"channel": []},
        {"channel": {"resourceClaimTemplate": {"name": "channel"}}, "numNodes": "4"},
        {"channel": {"resourceClaimTemplate": {"name": 7}}, "numNodes": "4"},
    ],
)
def test_a_domain_that_cannot_be_read_breaks_nothing(spec):
    broken = json.dumps({"apiVersion": "resource.nvidia.com/v1beta1", "kind": "ComputeDomain", "metadata": {"name": "d"}, "spec": spec})  # fmt: skip
    assert codes(join(broken, workload_of(2, namespace="default"), channel_claim(channel()))) <= {"D206"}
