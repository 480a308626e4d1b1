"""The ResourceClaimTemplate that NVIDIA's controller creates for a ComputeDomain."""

import pytest

from dra.objects import channel_template

UID = "11111111-2222-4333-8444-555555555555"


def domain(template="channel", *, version="resource.nvidia.com/v1beta1", uid="", **channel):
    metadata = {"name": "d", "namespace": "a"} | ({"uid": uid} if uid else {})
    spec = {"channel": {"resourceClaimTemplate": {"name": template}, **channel}}
    return {"apiVersion": version, "kind": "ComputeDomain", "metadata": metadata, "spec": spec}


def test_a_compute_domain_template_requests_one_channel():
    template = channel_template(domain(uid=UID, allocationMode="All"))
    assert (template.metadata.namespace, template.metadata.name) == ("a", "channel")
    [request] = template.spec.spec.devices.requests
    assert request.exactly.device_class_name == "compute-domain-default-channel.nvidia.com"
    assert (request.exactly.allocation_mode, request.exactly.count) == ("ExactCount", 1)
    [config] = template.spec.spec.devices.config
    parameters = config.opaque.parameters.value()
    assert (parameters["domainID"], parameters["allocationMode"]) == (UID, "All")


@pytest.mark.parametrize(
    "obj",
    [domain(""), domain(5), domain(version="example.com/v1"), {**domain(), "spec": []}, {**domain(), "kind": "Domain"}],
)
def test_no_template_is_created_unless_a_compute_domain_names_one(obj):
    assert channel_template(obj) is None
