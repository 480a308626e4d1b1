"""Selectors and paths of the API, computed without a server."""

from cluster.embedded.label_selectors import selector
from cluster.resources import CONFIG_MAPS, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES, key, metadata, resource_of
from tests.cluster.objects import claim, versioned_claim


def test_an_empty_selector_matches_without_reading_the_object():
    assert selector("pods", "", " ").matches({}, lambda: 1 / 0)


def test_unset_fields_match_as_empty():
    assert selector("pods", "", "spec.nodeName=").matches({}, lambda: {"metadata": {}})


def test_api_paths_are_built_from_resource_and_namespace():
    assert PODS.path() == "/api/v1/pods"
    assert PODS.path("ns", "a", "binding") == "/api/v1/namespaces/ns/pods/a/binding"
    assert RESOURCE_SLICES.path("ignored", "a") == "/apis/resource.k8s.io/v1/resourceslices/a"


def test_plain_and_typed_objects_have_the_same_key_and_resource():
    plain_claim = claim("a", metadata={"namespace": "ns", "uid": "1"})
    assert key(plain_claim) == key(versioned_claim("a", 1)) == ("ns", "a")
    assert resource_of(plain_claim) is resource_of(versioned_claim("a", 1)) is RESOURCE_CLAIMS
    assert metadata(plain_claim).uid == "1"
    assert resource_of({"apiVersion": "v9", "kind": "Riddle"}) is None
    assert CONFIG_MAPS.raw.plain({"metadata": {}})["kind"] == "ConfigMap"
