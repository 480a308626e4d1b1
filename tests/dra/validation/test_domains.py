"""ComputeDomains: channels that belong to none, template names, and the nodes that a domain waits for."""

import json
import time

import pytest

from dra.objects import ResourceClaim
from dra.validation.fleet.domains import ComputeDomains, channel_problems, domain_problems
from dra.wire import convert
from tests.dra.validation.manifests import codes, found, join, messages
from tests.dra.validation.test_parameters import UID, typed

DRIVER = "compute-domain.nvidia.com"
CHANNEL = "compute-domain-default-channel.nvidia.com"
NODES = ("D711", "/spec/numNodes")
TEMPLATE = ("D711", "/spec/channel/resourceClaimTemplate/name")


def domain(name="d", *, template="channel", nodes=None, namespace="ns", uid=""):
    spec = {"channel": {"resourceClaimTemplate": {"name": template}}}
    if nodes is not None:
        spec["numNodes"] = nodes
    metadata = {"name": name, "namespace": namespace} | ({"uid": uid} if uid else {})
    value = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "ComputeDomain", "metadata": metadata, "spec": spec}
    return json.dumps(value)


def spec_of(*entries, class_name=CHANNEL):
    config = [{"opaque": {"driver": DRIVER, "parameters": one}} for one in entries]
    return {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": class_name}}], "config": config}}


def claim(*entries, namespace="ns", **more):
    metadata = {"name": "c", "namespace": namespace}
    return json.dumps({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata, "spec": spec_of(*entries, **more)})  # fmt: skip


def template(name="channel", namespace="ns", uid=""):
    metadata = {"name": name, "namespace": namespace} | ({"uid": uid} if uid else {})
    spec = {"spec": spec_of(channel())}
    return json.dumps({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": metadata, "spec": spec})  # fmt: skip


def channel(uid=UID):
    return typed("ComputeDomainChannelConfig", domainID=uid)


def pod_spec(name="channel"):
    container = {"name": "main", "image": "x", "resources": {"claims": [{"name": "imex"}]}}
    return {"containers": [container], "resourceClaims": [{"name": "imex", "resourceClaimTemplateName": name}]}


def workload(count=None, *, kind="Deployment", name="w", field="replicas", uses="channel", namespace="ns", owner=None):
    labels = {"matchLabels": {"a": "b"}}
    inner = {"metadata": {"labels": {"a": "b"}}, "spec": pod_spec(uses)}
    spec = {"selector": labels, "template": inner} | ({field: count} if count is not None else {})
    owners = (
        {"ownerReferences": [{"apiVersion": "v1", "kind": owner[0], "name": owner[1], "uid": "u"}]} if owner else {}
    )
    metadata = {"name": name, "namespace": namespace} | owners
    api = "batch/v1" if kind == "Job" else "apps/v1"
    return json.dumps({"apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec})


def pod(name="p", *, owner=None):
    owners = (
        {"ownerReferences": [{"apiVersion": "v1", "kind": owner[0], "name": owner[1], "uid": "u"}]} if owner else {}
    )
    metadata = {"name": name, "namespace": "ns"} | owners
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod_spec()})


def of_domains(*texts):
    return {one for one in found(join(*texts)) if one[0] in ("D206", "D710", "D711")}


# Which domain a channel belongs to


def test_a_channel_that_nothing_assigns_to_a_domain_is_never_prepared():
    assert found(claim()) == {("D710", "/spec/devices/requests/0")}
    daemon = claim(channel(), class_name="compute-domain-daemon.nvidia.com")
    assert found(daemon) == {("D710", "/spec/devices/requests/0")}
    assert not found(claim(channel()))
    assert not found(claim(class_name="other.example.com"))


def test_a_class_may_say_it_for_its_channels():
    config = [{"opaque": {"driver": DRIVER, "parameters": channel()}}]
    class_ = json.dumps({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": CHANNEL}, "spec": {"config": config}})  # fmt: skip
    assert not found(join(claim(), class_))


def test_an_entry_names_a_domain_by_the_uid_that_a_cluster_gave_it():
    at = ("D710", "/spec/devices/config/0/opaque/parameters/domainID")
    assert not of_domains(claim(channel()), domain(uid=UID))
    assert of_domains(claim(channel()), domain()) == {at}
    assert of_domains(claim(channel()), domain(uid=UID.replace("6f", "7f"))) == {at}
    assert "let the pods use the template that the ComputeDomain creates: channel" in " ".join(
        messages(join(claim(channel()), domain()))
    )
    # The driver refuses claims of other namespaces; a domain elsewhere does not matter otherwise.
    assert of_domains(claim(channel(), namespace="other"), domain(uid=UID)) == {at}
    assert not of_domains(claim(channel(), namespace="other"), domain())
    assert not of_domains(claim(channel()))
    # The driver makes the claims of its daemons in its own namespace.
    daemon = typed("ComputeDomainDaemonConfig", domainID=UID)
    theirs = claim(daemon, namespace="driver", class_name="compute-domain-daemon.nvidia.com")
    assert not of_domains(theirs, domain(uid=UID))


def test_the_template_that_a_domain_makes_need_not_be_among_the_manifests():
    assert not of_domains(domain(), workload(2))
    assert "D206" in codes(join(domain(template="other"), template("unrelated"), workload(2)))
    assert "D206" not in codes(join(domain(), template("unrelated"), workload(2)))
    far = join(domain(namespace="far"), template("unrelated"), workload(2))
    assert "it exists in namespace far" in " ".join(messages(far))


# What stands around a domain


def test_two_domains_cannot_make_one_template():
    assert of_domains(domain(), domain("e")) == {TEMPLATE}
    assert not of_domains(domain(), domain("e", template="other"))
    assert not of_domains(domain(), domain("e", namespace="other"))


def test_a_template_by_hand_is_in_the_way_of_the_one_that_a_domain_makes():
    assert of_domains(domain(), template()) >= {TEMPLATE}
    assert TEMPLATE in of_domains(domain(uid=UID), template())
    assert not of_domains(domain(uid=UID), template(uid="1"))  # read from a cluster, where it was made
    assert TEMPLATE not in of_domains(domain(), template(namespace="other"))


@pytest.mark.parametrize(
    "texts",
    [
        [workload(4)],
        [workload(3), pod()],
        [workload(4, kind="Job", field="parallelism")],
        [workload(1, name="a"), workload(3, name="b", kind="StatefulSet")],
        [workload(4), workload(4, kind="ReplicaSet", name="r", owner=("Deployment", "w")), pod(owner=("ReplicaSet", "r"))],
        [workload(3), pod(owner=("JobSet", "away"))],
        [workload(2), workload(kind="DaemonSet", name="everywhere")],
        [workload(4), workload(9, uses="other", name="channel")],
        [workload(3), workload(9, uses="other", name="o")],
        [workload(4), workload(9, namespace="other")],
        [json.dumps({"apiVersion": "jobset.x-k8s.io/v1", "kind": "JobSet", "metadata": {"name": "j", "namespace": "ns"}, "spec": {"of": pod_spec()}}), workload(1)],
        [],
    ],
    ids=["as many", "and a pod", "a Job", "two workloads", "each counted once", "whose owner is not here", "on all nodes", "that is only called so",
         "with another template", "in another namespace", "of an unknown kind", "no pod"],
)  # fmt: skip
def test_a_domain_whose_nodes_may_all_come_is_fine(texts):
    waits = 3 if workload(9, uses="other", name="o") in texts else 4
    assert NODES not in of_domains(domain(nodes=waits), *texts)


@pytest.mark.parametrize(
    ("texts", "pods"), [([workload(3)], 3), ([workload()], 1), ([workload(5)], 5), ([workload(4), pod()], 5)]
)
def test_a_domain_that_waits_for_another_number_of_nodes_is_pointed_out(texts, pods):
    everything = join(domain(nodes=4), *texts)
    assert NODES in found(everything)
    assert f"write numNodes: {pods}, or leave it out" in " ".join(messages(everything))
    assert NODES not in found(join(domain(nodes=0), *texts))
    assert NODES not in found(join(domain(), *texts))


MANY = 20_000


@pytest.mark.parametrize(
    "objects",
    [
        lambda: [domain(f"d{n}", nodes=1) for n in range(MANY)],
        lambda: [
            *(domain(f"d{n}", template=f"t{n}", nodes=1) for n in range(MANY // 2)),
            *([workload(2, uses="t1")] * (MANY // 2)),
        ],
        lambda: [domain(nodes=1), *(pod(f"p{n}") for n in range(MANY))],
        lambda: [text for n in range(MANY // 3) for text in (domain(f"d{n}", nodes=1), pod(f"p{n}"))],
        lambda: [*(domain(f"d{n}", uid=f"u{n}") for n in range(MANY // 2)), *([claim(channel("u7"))] * (MANY // 2))],
    ],
    ids=["of one template", "and workloads", "and pods", "of one template and pods", "and claims"],
)
def test_very_many_domains_are_judged_in_bounded_time(objects):
    values = [json.loads(text) for text in objects()]
    began = time.process_time()
    domains = ComputeDomains(values)
    found = [problem for _, problem in domain_problems(values, domains)]
    for value in values:
        if value["kind"] == "ResourceClaim":
            typed_claim = convert(value, ResourceClaim)
            found += channel_problems(typed_claim.spec.devices, "", "other", domains)
    # Far above what is needed on a busy machine, far below what anything quadratic takes.
    assert time.process_time() - began < 15
    assert {problem.code for problem in found} <= {"D710", "D711"}
    assert found


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        [],
        "text",
        {"channel": []},
        {"channel": {"resourceClaimTemplate": {"name": "channel"}}, "numNodes": "4"},
        {"channel": {"resourceClaimTemplate": {"name": 7}}, "numNodes": "4"},
    ],
)
def test_a_domain_that_cannot_be_read_breaks_nothing(wrong):
    broken = json.dumps({"apiVersion": "resource.nvidia.com/v1beta1", "kind": "ComputeDomain", "metadata": {"name": "d"}, "spec": wrong})  # fmt: skip
    assert codes(join(broken, workload(2, namespace="default"), claim(channel()))) <= {"D206"}
