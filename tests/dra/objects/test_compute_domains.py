"""The template that a ComputeDomain makes."""

import pytest

from dra.objects import channel_template

UID = "11111111-2222-4333-8444-555555555555"


def domain(template="channel", *, version="resource.nvidia.com/v1beta1", uid="", **channel):
    metadata = {"name": "d", "namespace": "a"} | ({"uid": uid} if uid else {})
    spec = {"channel": {"resourceClaimTemplate": {"name": template}, **channel}}
    return {"apiVersion": version, "kind": "ComputeDomain", "metadata": metadata, "spec": spec}


def test_a_compute_domain_template_requests_one_channel():
    made = channel_template(domain(uid=UID, allocationMode="All"))
    assert (made.metadata.namespace, made.metadata.name) == ("a", "channel")
    [request] = made.spec.spec.devices.requests
    assert request.exactly.device_class_name == "compute-domain-default-channel.nvidia.com"
    assert (request.exactly.allocation_mode, request.exactly.count) == ("ExactCount", 1)
    [config] = made.spec.spec.devices.config
    parameters = config.opaque.parameters.value()
    assert (parameters["domainID"], parameters["allocationMode"]) == (UID, "All")


@pytest.mark.parametrize(
    "obj",
    [domain(""), domain(5), domain(version="example.com/v1"), {**domain(), "spec": []}, {**domain(), "kind": "Domain"}],
)
def test_only_a_compute_domain_that_names_a_template_makes_one(obj):
    assert channel_template(obj) is None
