"""The defaults that the API server sets."""

from dra.objects import defaults
from dra.objects.claim import ResourceClaim, ResourceClaimTemplate
from dra.wire import convert

BARE = {"requests": [{"name": "a", "exactly": {"deviceClassName": "c", "tolerations": [{"key": "k", "value": "v"}]}}]}


def test_a_bare_request_asks_for_exactly_one_device():
    (request,) = defaults.claim(convert({"spec": {"devices": BARE}}, ResourceClaim)).spec.devices.requests
    assert (request.exactly.allocation_mode, request.exactly.count) == ("ExactCount", 1)
    assert request.exactly.tolerations[0].operator == "Equal"


def test_mode_all_gets_no_count_and_a_set_count_stays():
    requests = [
        {"name": "a", "exactly": {"deviceClassName": "c", "allocationMode": "All"}},
        {"name": "b", "firstAvailable": [{"name": "s", "deviceClassName": "c", "count": 3}]},
    ]
    first, second = defaults.claim(
        convert({"spec": {"devices": {"requests": requests}}}, ResourceClaim)
    ).spec.devices.requests
    assert first.exactly.count == 0
    assert (second.first_available[0].allocation_mode, second.first_available[0].count) == ("ExactCount", 3)


def test_templates_get_the_same_defaults_as_claims():
    template = defaults.template(convert({"spec": {"spec": {"devices": BARE}}}, ResourceClaimTemplate))
    assert template.spec.spec.devices.requests[0].exactly.count == 1
