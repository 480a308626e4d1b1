"""`admission_review.decode_pod` decodes only the parts of a pod that decisions read."""

import random

import msgspec
import pytest

from tests.limits import PATIENCE, draws
from tests.webhook.admission.reviews import ENFORCE, review
from tests.webhook.pods import configured
from tests.webhook.service.random_reviews import CONFIGURATIONS, ChangingCluster, RandomReviews, new_decider
from webhook.admission import admission_review as reviews
from webhook.admission import review as admission

POD_KEYS, SPEC_KEYS, CONTAINER_KEYS = (
    frozenset(parts.__annotations__) for parts in (reviews._PodParts, reviews._SpecParts, reviews._ContainerParts)
)


class RecordingDict(dict):
    """A dict that records the keys that are read."""

    def __init__(self, value, read_keys):
        super().__init__(value)
        self.read_keys = read_keys

    def get(self, key, default=None):
        self.read_keys.add(key)
        return super().get(key, default)

    def __getitem__(self, key):
        self.read_keys.add(key)
        return super().__getitem__(key)

    def __contains__(self, key):
        self.read_keys.add(key)
        return super().__contains__(key)


def decode_with_recording(read_keys):
    """Return a replacement for `decode_pod` whose pods record the keys that are read in `read_keys`."""

    def read(body):
        request = reviews.decode(body)
        if request.resource.resource != "pods" or request.operation == "DELETE":
            return request, None
        pod = reviews.read(request.object)
        spec = pod["spec"]
        for name in ("containers", "initContainers"):
            if name in spec:
                spec[name] = [RecordingDict(container, read_keys["container"]) for container in spec[name]]
        pod["spec"] = RecordingDict(spec, read_keys["spec"])
        return request, RecordingDict(pod, read_keys["pod"])

    return read


@pytest.mark.parametrize("mode", ["enforce", "warn", "observe"])
@pytest.mark.parametrize("name", [name for name in CONFIGURATIONS if name != "mixed fleet"])
def test_decisions_read_only_the_pod_fields_that_are_decoded(monkeypatch, name, mode):
    read_keys = {"pod": set(), "spec": set(), "container": set()}
    rng = random.Random(f"{name} {mode}")
    configuration = configured(**{"mode": mode, **CONFIGURATIONS[name]})
    assert not configuration.reads_all
    cluster, random_reviews = ChangingCluster(rng, configuration), RandomReviews(rng)
    monkeypatch.setattr(admission.reviews, "decode_pod", decode_with_recording(read_keys))
    for _ in range(draws(150)):
        cluster.change(random_reviews.template)
        request = random_reviews.request()
        options = {key: value for key, value in request.items() if key != "obj"}
        outcome = new_decider().decide(
            "mutate", review(request["obj"], **options), cluster.state(cluster.following_builder), PATIENCE
        )
        random_reviews.record(request, outcome)
    assert read_keys["pod"] <= POD_KEYS
    assert read_keys["spec"] <= SPEC_KEYS
    assert read_keys["container"] <= CONTAINER_KEYS
    assert {"containers", "schedulerName", "resourceClaims"} <= read_keys["spec"], (
        "the recording misses keys that decisions read"
    )


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
    assert parts == {"spec": {"volumes": [{}], "containers": [decoded_container]}}
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
