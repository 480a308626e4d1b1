"""`admission_review.decode_pod` decodes only the parts of a pod that decisions read."""

import random

import msgspec
import pytest

from tests.limits import PATIENCE, draws
from tests.webhook.admission.reviews import ENFORCE, review
from tests.webhook.pods import WHOLE_GPUS, configured
from tests.webhook.service.random_reviews import CONFIGURATIONS, ChangingCluster, RandomReviews, new_decider
from webhook.admission import admission_review as reviews
from webhook.admission import review as admission

DECODED = {
    "": reviews.PodParts.__struct_encode_fields__,
    "metadata": tuple(reviews._MetadataParts.__annotations__),
    "spec": reviews._SpecParts.__struct_encode_fields__,
    "container": reviews._ContainerParts.__struct_encode_fields__,
    "resources": reviews.ResourceParts.__struct_encode_fields__,
    "env": reviews._VariableParts.__struct_encode_fields__,
    "volume": reviews._VolumeParts.__struct_encode_fields__,
}
LISTS = {"containers": "container", "initContainers": "container", "env": "env", "volumes": "volume"}
CPUS_BY_CLAIM = {"cpuClaims": {"default": "translate"}}
HOST_RESOURCES = {"koordinator": {"hostResources": {"cpu": "cpu"}}}
EVERY_CONFIGURATION = CONFIGURATIONS | {
    "CPUs by claim": WHOLE_GPUS | CPUS_BY_CLAIM,
    "mixed fleet, CPUs by claim": CONFIGURATIONS["mixed fleet"] | CPUS_BY_CLAIM,
    "host resources": HOST_RESOURCES,
}
# Fields of pods that no decision may depend on, except `os`.
FURTHER_FIELDS = {
    "activeDeadlineSeconds": 5,
    "dnsPolicy": "Default",
    "hostPID": True,
    "hostname": "h",
    "os": {"name": "windows"},
    "overhead": {"cpu": "500"},
    "preemptionPolicy": "Never",
    "priority": 7,
    "readinessGates": [{"conditionType": "x"}],
    "runtimeClassName": "nvidia",
    "schedulingGates": [{"name": "g"}],
    "schedulingGroup": {"podGroupName": "g"},
    "subdomain": "s",
    "terminationGracePeriodSeconds": 0,
    "topologySpreadConstraints": [{"maxSkew": 1}],
}


class RecordingDict(dict):
    """A dict that records which of its fields are read, as pairs of `place` and the field's name."""

    def __init__(self, value, place, read_fields):
        super().__init__(value)
        self.place, self.read_fields = place, read_fields

    def _record(self, *fields):
        self.read_fields.update((self.place, field) for field in fields)

    def get(self, key, default=None):
        self._record(key)
        return super().get(key, default)

    def __getitem__(self, key):
        self._record(key)
        return super().__getitem__(key)

    def __contains__(self, key):
        self._record(key)
        return super().__contains__(key)

    def __iter__(self):  # without it, `{**pod}` would copy the fields unrecorded
        return super().__iter__()

    def copy(self):
        return RecordingDict(super().items(), self.place, self.read_fields)

    def items(self):
        self._record(*self)
        return super().items()

    def values(self):
        self._record(*self)
        return super().values()


def recording(value, place, read_fields):
    """Return a part of a pod whose dicts with declared fields record the fields that are read."""
    copied = dict(value)
    for name, member in value.items():
        if isinstance(member, dict) and name in DECODED and (place, name) != ("spec", "resources"):
            copied[name] = recording(member, name, read_fields)
        elif isinstance(member, list) and name in LISTS:
            copied[name] = [recording(item, LISTS[name], read_fields) for item in member]
    return RecordingDict(copied, place, read_fields)


def decode_whole(body):
    return reviews.decode(body), None


@pytest.mark.parametrize("mode", ["enforce", "warn", "observe"])
@pytest.mark.parametrize("name", EVERY_CONFIGURATION)
def test_decisions_read_only_the_pod_fields_that_are_decoded(monkeypatch, name, mode):
    """Decisions on recording pods read no other field, and decisions on whole pods with further fields are the same."""
    read_fields = set()
    rng = random.Random(f"{name} {mode}")
    configuration = configured(**{"mode": mode, **EVERY_CONFIGURATION[name]})
    cluster, random_reviews = ChangingCluster(rng, configuration), RandomReviews(rng)
    decode_parts, read = reviews.decode_pod, reviews.read

    def read_with_recording(raw):
        return recording(read(raw), "", read_fields)

    guaranteed = {"name": "c0", "resources": {"limits": {"cpu": "2", "memory": "1Gi"}}}
    first_request = {"obj": {"metadata": {"name": "p"}, "spec": {"containers": [guaranteed]}}, "namespace": "ns"}
    for number in range(draws(150)):
        cluster.change(random_reviews.template)
        request = random_reviews.request() if number else first_request
        options = {key: value for key, value in request.items() if key != "obj"}
        further = {field: FURTHER_FIELDS[field] for field in rng.sample(sorted(FURTHER_FIELDS), 3)}
        body = review(request["obj"] | {"spec": further | request["obj"]["spec"]}, **options)
        state = cluster.state(cluster.following_builder)
        outcomes = []
        for decode_pod, read_object in (
            (decode_parts, read),
            (decode_whole, read),
            (decode_whole, read_with_recording),
        ):
            monkeypatch.setattr(reviews, "decode_pod", decode_pod)
            monkeypatch.setattr(reviews, "read", read_object)
            outcomes.append(new_decider().decide("mutate", body, state, PATIENCE))
        if outcomes[0].record.outcome != admission.OUT_OF_SCOPE:
            assert outcomes[0] == outcomes[1] == outcomes[2], request
        random_reviews.record(request, outcomes[0])
    if configuration.reads_all:
        return
    for place, declared in DECODED.items():
        unknown = {field for read_place, field in read_fields if read_place == place} - set(declared)
        unknown -= {"apiVersion", "kind"}  # only `dict(pod)` reads them
        assert not unknown, f"decisions read fields of {place or 'a pod'} that are not decoded: {unknown}"
    assert read_fields >= {("spec", "containers"), ("spec", "schedulerName"), ("spec", "resourceClaims")}, (
        "the recording misses fields that decisions read"
    )
    assert (("spec", "os") in read_fields) == configuration.claims_cpus


@pytest.mark.parametrize("spec", [{"containers": {}}, {"containers": [1]}, {"containers": None}, [], 5, None])
def test_a_pod_of_an_unexpected_shape_is_decoded_completely(spec):
    body = review({"kind": "Pod", "spec": spec, "x": 1})
    assert reviews.decode_pod(body) == (reviews.decode(body), None)
    outcomes = []
    for decode in (lambda body: (reviews.decode(body), None), reviews.decode_pod):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(admission.reviews, "decode_pod", decode)
            outcomes.append(admission.decide_review("mutate", body, ENFORCE))
    assert outcomes[0] == outcomes[1]


KEYS_WITH_VARIABLE = [
    {"name": "m.example/gpu", "role": "count", "unit": "count", "meaning": "cards"},
    {"name": "M_PRODUCT", "role": "models", "unit": "list", "place": "env", "meaning": "products"},
]
# A dialect (a table of the keys of one system) that reads an environment variable.
READS_VARIABLE = {"name": "mine", "title": "Mine", "target": "gpu", "keys": KEYS_WITH_VARIABLE}


def test_unused_pod_fields_are_not_decoded():
    container = {"name": "c", "env": [{"name": "A", "x": 1}], "ports": [{}], "resources": {"limits": {"x": 1}}}
    pod = {"spec": {"volumes": [{"secret": {}}], "hostname": "h", "containers": [container]}}
    request, parts = reviews.decode_pod(review(pod))
    decoded_container = {"name": "c", "env": [{"name": "A"}], "resources": {"limits": {"x": 1}}}
    assert reviews.whole(parts) == {"spec": {"volumes": [{}], "containers": [decoded_container]}}
    assert (request.uid, request.namespace, request.operation) == ("u", "ns", "CREATE")
    assert not configured(dialects=[READS_VARIABLE]).reads_all
    assert configured(mixed={"nvidia.com/gpu": {"prefer": "dra"}}).reads_all


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"kind":"AdmissionReview"}', b"\xff", review({}, uid="")])
def test_both_decoders_reject_malformed_reviews_with_the_same_message(body):
    errors = []
    for decode in (reviews.decode, reviews.decode_pod):
        with pytest.raises(reviews.ReviewError) as refused:
            decode(body)
        errors.append((refused.value.status, str(refused.value)))
    assert errors[0] == errors[1]


@pytest.mark.parametrize("variable", [{"value": "H100"}, {"valueFrom": {"fieldRef": {}}}, {"value": 5}, {}])
def test_a_dialect_with_variables_decides_equally_on_partly_decoded_pods(monkeypatch, variable):
    state = msgspec.structs.replace(ENFORCE, configuration=configured(dialects=[READS_VARIABLE]))
    container = {
        "name": "c",
        "env": [{"name": "M_PRODUCT", **variable}],
        "resources": {"limits": {"m.example/gpu": "1"}},
    }
    body = review({"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [container]}})
    on_parts = admission.decide_review("mutate", body, state)
    monkeypatch.setattr(admission.reviews, "decode_pod", lambda body: (reviews.decode(body), None))
    assert admission.decide_review("mutate", body, state) == on_parts
    assert on_parts.record.decisions
