"""Rotation of certificates: an authority is replaced while the API server keeps calling, and no call fails.

The steps are written into the Secrets as a replica would write them a year from now; everything else is the running
authority process, the running webhook and the real API server, under failurePolicy Fail.
"""

import base64
import copy
import datetime as dt
import http
import json
import secrets
import socket
import time

import pytest

from certs import authority, material
from certs.material import Names
from certs.rotation import Policy, RotationPhase, RotationStep
from e2e.actors.client import ApiError
from e2e.actors.load import Calls
from e2e.actors.webhook import SYSTEM
from e2e.actors.workloads import container, limits, pod

pytestmark = pytest.mark.real

SECRETS = f"/api/v1/namespaces/{SYSTEM}/secrets"
SERVING, AUTHORITYS, SIGNING = (
    f"{SECRETS}/drawbridge",
    f"{SECRETS}/drawbridge-authority",
    f"{SECRETS}/drawbridge-signature",
)
DOOR = f"{SECRETS}/drawbridge-reservations"
PATHS = (SERVING, AUTHORITYS, SIGNING, DOOR)
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1"
KINDS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
# The names in a replica's certificate.
NAMES = ("drawbridge.drawbridge-system.svc", "drawbridge.drawbridge-system.svc.cluster.local", "drawbridge.drawbridge-system", "127.0.0.1")  # fmt: skip
OF_DOOR = tuple(name.replace("drawbridge.", "drawbridge-reservations.", 1) for name in NAMES[:3])
POLICY = Policy()


def data_of(cluster, path):
    return entries(cluster.get(path))


def entries(secret):
    return {name: base64.b64decode(value) for name, value in secret["data"].items()}


def together(cluster):
    """Read the four Secrets at one moment: repeat until no version changes between two reads."""
    objects = [cluster.get(path) for path in PATHS]
    while versions(objects) != versions(again := [cluster.get(path) for path in PATHS]):
        objects = again
    return dict(zip(PATHS, objects, strict=True))


def versions(objects):
    return [secret["metadata"]["resourceVersion"] for secret in objects]


def held(cluster):
    return material_of(together(cluster))


def material_of(objects):
    return material.decode(material.Data(*(entries(objects[path]) for path in PATHS)))


def take(cluster, step):
    """Write one step into the Secrets as a replica would a year from now: the authority's first, each with its resource version."""
    objects = together(cluster)
    now = dt.datetime.now(dt.UTC)
    after = material.apply(
        material_of(objects),
        step,
        Names(NAMES, OF_DOOR),
        now=now,
        policy=POLICY,
        new_signing_key=lambda: secrets.token_bytes(32),
    )
    due = material.encode(after)
    for path, wanted in (
        (AUTHORITYS, due.authority),
        (SIGNING, due.signing),
        (SERVING, due.serving),
        (DOOR, due.allocator),
    ):
        gone = dict.fromkeys(name for name in material.ENTRIES if name not in wanted)
        data = {name: base64.b64encode(value).decode() for name, value in wanted.items()} | gone
        seen = {"resourceVersion": objects[path]["metadata"]["resourceVersion"]}
        try:
            cluster.patch(path, {"metadata": seen, "data": data})
        except ApiError as error:
            if error.code != http.HTTPStatus.CONFLICT or path == AUTHORITYS:
                raise
            break  # the running authority has seen the first step and repairs the others itself
    cluster.until("what serves is signed by the authority that signs now", lambda: is_signed(held(cluster)), 40)
    return held(cluster)


def is_signed(now):
    """Return whether the current authority has signed the leaves; an untrusted authority never signs."""
    for leaf in (now.leaf, now.allocator):
        assert any(
            authority.signed_by(leaf.certificate, signer)
            for signer in (now.authority.certificate, now.previous)
            if signer
        )
    return all(authority.signed_by(leaf.certificate, now.authority.certificate) for leaf in (now.leaf, now.allocator))


def believed(cluster):
    """The bundles of all registered webhooks."""
    return {
        base64.b64decode(webhook["clientConfig"].get("caBundle", ""))
        for kind in KINDS
        for webhook in cluster.get(f"{CONFIGURATIONS}/{kind}/drawbridge")["webhooks"]
    }


def served(webhook):
    """The webhook's certificate in a new connection."""
    with socket.create_connection(("127.0.0.1", webhook.port), timeout=60) as raw, webhook.trust().wrap_socket(raw, server_hostname="127.0.0.1") as tls:  # fmt: skip
        return tls.getpeercert(binary_form=True)


def succeed(control_plane, webhook, calls):
    """Replace the authority step by step; calls continue while each step reaches all components."""
    first = held(control_plane)
    both = take(control_plane, RotationStep.INTRODUCE)
    control_plane.until("both are believed", lambda: believed(control_plane) == {both.bundle}, 40)
    before = served(webhook)
    new = take(control_plane, RotationStep.SWITCH)
    control_plane.until("the new leaf is served", lambda: served(webhook) != before, 40)
    control_plane.until("the old one is still believed", lambda: believed(control_plane) == {new.bundle}, 40)
    last = take(control_plane, RotationStep.RETIRE)
    control_plane.until("the old one is forgotten", lambda: believed(control_plane) == {last.bundle}, 40)
    answered = calls.answered
    control_plane.until("calls go on", lambda: calls.answered > answered + 20, 20)
    assert held(control_plane).phase is RotationPhase.STEADY
    assert first.authority.certificate not in last.bundle
    for leaf in (last.leaf, last.allocator):
        assert authority.signed_by(leaf.certificate, last.authority.certificate)
    assert last.signing_keys.keys == (new.signing_keys.current, first.signing_keys.current)


ROUNDS = [
    pytest.param(2, id="twice"),
    pytest.param(50, id="fifty times", marks=[pytest.mark.long, pytest.mark.timeout(3600)]),
]


@pytest.mark.parametrize("times", ROUNDS)
def test_an_authority_is_replaced_and_no_call_fails(control_plane, gated, webhook, times):
    with Calls(control_plane, gated) as calls:
        for _ in range(times):
            succeed(control_plane, webhook, calls)
    print(f"{times} rotations: {calls}")
    assert calls.failures == []


ITEM = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 100}


def works(control_plane, gated):
    """Return whether reviews are answered and the certificates have settled."""
    try:
        control_plane.create(pod("p", gated, container(**limits(**ITEM))), dryRun="All")
        return held(control_plane).phase is RotationPhase.STEADY
    except Exception:  # noqa: BLE001  any failure means: not yet
        return False


def test_a_deleted_serving_secret_is_recreated_and_no_call_fails(control_plane, gated, webhook):
    before = held(control_plane)
    with Calls(control_plane, gated) as calls:
        control_plane.delete(SERVING)
        control_plane.until("there is another", lambda: control_plane.read({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "drawbridge", "namespace": SYSTEM}}), 20)  # fmt: skip
        answered = calls.answered
        control_plane.until("calls go on", lambda: calls.answered > answered + 100, 20)
    assert calls.failures == []
    assert held(control_plane).signing_keys == before.signing_keys, "what was signed stays believed"


@pytest.mark.parametrize("harm", ["deleted", "all deleted", "damaged"])
def test_reviews_recover_by_themselves_after_any_change_to_the_secrets(control_plane, gated, webhook, harm):
    """Calls may fail for a moment if the change leaves no overlap of old and new keys."""
    match harm:
        case "deleted":
            control_plane.delete(AUTHORITYS)
        case "all deleted":
            for path in PATHS:
                control_plane.delete(path)
        case "damaged":
            rubbish = base64.b64encode(b"rubbish").decode()
            for path in PATHS:
                control_plane.patch(path, {"data": dict.fromkeys(data_of(control_plane, path), rubbish)})
    control_plane.until("all Secrets hold their own", lambda: at_rest(control_plane), 60)
    control_plane.until("reviews are answered", lambda: works(control_plane, gated), 60)


def at_rest(cluster):
    try:
        now = held(cluster)
        return (
            now.authority
            and now.leaf
            and now.allocator
            and not data_of(cluster, SERVING).keys() & material.AUTHORITY_ENTRIES
        )
    except ApiError:
        return False


@pytest.mark.parametrize("kind", KINDS)
def test_an_emptied_ca_bundle_is_restored_by_the_watch(control_plane, gated, webhook, kind):
    path = f"{CONFIGURATIONS}/{kind}/drawbridge"
    whole = {held(control_plane).bundle}
    control_plane.until("the bundle is everywhere", lambda: believed(control_plane) == whole, 20)
    count = len(control_plane.get(path)["webhooks"])
    emptied = [{"op": "remove", "path": f"/webhooks/{i}/clientConfig/caBundle"} for i in range(count)]
    quick = 0
    # After a repair by a poll the next poll is ten seconds away, so polls make at most one early repair. A second comes from the watch.
    for _ in range(8):
        control_plane.patch(path, emptied, "json")
        begun = time.monotonic()
        control_plane.until("the bundle is back", lambda: believed(control_plane) == whole, 20)
        quick += time.monotonic() - begun < 5
        if quick == 2:
            return
    pytest.fail("the bundle came back by a look, and not by a watch")


def test_rules_follow_the_annotation_that_an_administrator_changes(control_plane, webhook):
    """An upgrade may change the rules. The policy that limits the authority allows them if they match the annotation."""
    path = f"{CONFIGURATIONS}/validatingwebhookconfigurations/drawbridge"
    original = json.loads(control_plane.get(path)["metadata"]["annotations"]["drawbridge.dev/rules"])
    waiting = copy.deepcopy(original)
    waiting["claims.validate.drawbridge.dev"][0]["resources"] = ["resourceclaims"]

    def annotate(rules):
        text = json.dumps(rules, separators=(",", ":"))
        control_plane.patch(path, {"metadata": {"annotations": {"drawbridge.dev/rules": text}}})

    def rules():
        return {webhook["name"]: webhook["rules"] for webhook in control_plane.get(path)["webhooks"]}

    assert rules() == original
    try:
        annotate(waiting)
        control_plane.until("the rules are the new ones", lambda: rules() == waiting, 20)
    finally:
        annotate(original)
    control_plane.until("the rules are the old ones", lambda: rules() == original, 20)


MAY_READ = {
    "webhook": {"drawbridge", "drawbridge-signature"},
    "controller": {"drawbridge-signature"},
    "authority": {"drawbridge", "drawbridge-authority", "drawbridge-signature", "drawbridge-reservations"},
}


def test_each_account_reads_only_its_own_secrets(control_plane, webhook):
    for role, readable in MAY_READ.items():
        account = f"system:serviceaccount:{SYSTEM}:drawbridge-{role}"
        for secret in MAY_READ["authority"]:
            attributes = {"namespace": SYSTEM, "verb": "get", "resource": "secrets", "name": secret}
            review = {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SubjectAccessReview",
                "spec": {"user": account, "resourceAttributes": attributes},
            }
            answer = control_plane.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
            assert answer["status"]["allowed"] is (secret in readable), (role, secret)


@pytest.mark.parametrize("keeper", ["files", "cert-manager"])
def test_an_external_certificate_is_served_renewed_and_its_bundle_kept(control_plane, gated, webhook, tmp_path, keeper):
    """The test writes the files, and with cert-manager the caBundle, as a Certificate and the CA injector would."""
    now = dt.datetime.now(dt.UTC)
    theirs = authority.authority("theirs", now=now, life=dt.timedelta(days=10))
    (tmp_path / "ca.crt").write_bytes(theirs.certificate)

    def issue():
        leaf = authority.leaf(theirs, NAMES, now=now, life=dt.timedelta(days=1))
        (tmp_path / "tls.key").write_bytes(leaf.key)
        (tmp_path / "tls.crt").write_bytes(leaf.certificate)

    def inject():
        value = base64.b64encode(theirs.certificate).decode()
        for kind in KINDS:
            path = f"{CONFIGURATIONS}/{kind}/drawbridge"
            count = len(control_plane.get(path)["webhooks"])
            patch = [
                {"op": "add", "path": f"/webhooks/{i}/clientConfig/caBundle", "value": value} for i in range(count)
            ]
            control_plane.patch(path, patch, "json")

    issue()
    webhook.processes["webhook"].stop()
    try:
        webhook.trusted = theirs.certificate.decode()
        webhook.start_webhook(f"--tls-cert={tmp_path / 'tls.crt'}", f"--tls-key={tmp_path / 'tls.key'}")
        certificates = {"from": keeper, "certificate": "drawbridge-system/drawbridge"}
        if keeper == "files":
            certificates = {"from": keeper, "caBundle": (tmp_path / "ca.crt").read_text()}
        control_plane.kubectl("delete", "mutatingwebhookconfiguration,validatingwebhookconfiguration", "drawbridge")
        webhook.register(**certificates)
        if keeper == "cert-manager":
            assert believed(control_plane) == {b""}
            inject()
        control_plane.until("reviews are answered", lambda: refuses(control_plane, gated), 30)
        before = served(webhook)
        issue()
        control_plane.until("the renewed certificate is served", lambda: served(webhook) != before, 30)
        assert refuses(control_plane, gated)
        assert believed(control_plane) == {theirs.certificate}
    finally:
        webhook.trusted = ""
        webhook.processes["webhook"].stop()
        webhook.start_webhook()
        control_plane.kubectl("delete", "mutatingwebhookconfiguration,validatingwebhookconfiguration", "drawbridge")
        webhook.register()
        control_plane.until(
            "ours is believed again", lambda: believed(control_plane) == {held(control_plane).bundle}, 30
        )


def refuses(control_plane, namespace):
    """Return whether a review is answered, with words that only drawbridge uses."""
    try:
        control_plane.create(
            pod("p", namespace, container(**limits(**{"nvidia.com/gpu": 1, "nvidia.com/gpumem": "1500m"}))),
            dryRun="All",
        )
    except ApiError as error:
        return "[R001]" in error.message
    return False
