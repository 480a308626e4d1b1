"""Updates of fields that must not change. These tests add to the comparison with the API server."""

from dra.validation import update_errors
from tests.dra.validation import corpus

SLICE = {
    "apiVersion": corpus.API,
    "kind": "ResourceSlice",
    "metadata": {"name": "s"},
    "spec": {
        "driver": "a.example.com",
        "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
        "nodeName": "n",
        "devices": [{"name": "d"}],
    },
}
CLAIM = {
    "apiVersion": corpus.API,
    "kind": "ResourceClaim",
    "metadata": {"name": "c", "namespace": "default"},
    "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}},
}


def summary(problems):
    return [(problem.path, problem.message) for problem in problems]


def slice_with(**spec):
    return {**SLICE, "spec": SLICE["spec"] | spec}


def test_an_old_invalid_value_does_not_block_an_update():
    old = slice_with(devices=[{"name": "Not A Label"}])
    labelled = {**old, "metadata": {"name": "s", "labels": {"a": "b"}}}
    assert update_errors(labelled, old) == []
    worse = slice_with(devices=[{"name": "Not A Label"}, {"name": "Nor This"}])
    assert [path for path, _ in summary(update_errors(worse, old))] == ["/spec/devices/1/name"]


def test_server_defaults_are_not_a_change_of_the_spec():
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    filled = {**CLAIM, "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}}
    assert update_errors(CLAIM, filled) == []
    two = {**CLAIM, "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly | {"count": 2}}]}}}
    assert summary(update_errors(two, CLAIM)) == [("/spec", "field is immutable")]


def test_a_status_update_is_validated_by_its_status_only():
    reserved = [{"resource": "pods", "name": "p", "uid": "1"}]
    new = {**CLAIM, "metadata": {"name": "NOT A NAME"}, "status": {"reservedFor": reserved}}
    assert summary(update_errors(new, CLAIM, status=True)) == [
        ("/status/reservedFor", "may not be specified when `allocated` is not set")
    ]
