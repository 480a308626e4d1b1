"""The certificate drill: an authority is succeeded while the API server keeps calling, and no call fails.

The steps are written into the Secret as a replica would write them a year from now; everything else is the running
controller, the running gate and the real API server, under failurePolicy Fail.
"""

import base64
import datetime as dt
import socket
import threading

import pytest

from certs import authority, material
from certs.rotation import Phase, Policy, Step
from e2e.gate import SYSTEM
from e2e.workloads import container, limits, pod

pytestmark = pytest.mark.real

PATH = f"/api/v1/namespaces/{SYSTEM}/secrets/drawbridge"
# What a replica of this installation signs for.
NAMES = ("drawbridge.drawbridge-system.svc", "drawbridge.drawbridge-system.svc.cluster.local", "drawbridge.drawbridge-system", "127.0.0.1")  # fmt: skip
POLICY = Policy()


class Calls:
    """Reviews without a pause, in a thread; every failure is kept."""

    def __init__(self, cluster, namespace):
        self.cluster, self.namespace = cluster, namespace
        self.answered, self.failures, self.over = 0, [], threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        item = pod("p", self.namespace, container(**limits(**{"nvidia.com/gpu": 1, "nvidia.com/gpumem": 100})))
        while not self.over.is_set():
            try:
                self.cluster.create(item, dryRun="All")
                self.answered += 1
            except Exception as error:  # noqa: BLE001  whatever it is, a user would have seen it
                self.failures.append(str(error))

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


def held(cluster):
    data = cluster.get(PATH)["data"]
    return material.decode({name: base64.b64decode(value) for name, value in data.items()})


def take(cluster, step):
    """Do one step in the Secret; `since` lies far enough back for nobody to have to wait."""
    now = dt.datetime.now(dt.UTC)
    after = material.apply(held(cluster), step, NAMES, now=now, policy=POLICY)
    wanted = material.encode(after._replace(since=now))
    gone = dict.fromkeys(name for name in material.ENTRIES if name not in wanted)
    data = {name: base64.b64encode(value).decode() for name, value in wanted.items()}
    cluster.patch(PATH, {"data": data | gone})
    return after


def believed(cluster):
    """The bundles of all webhooks that are registered."""
    base = "/apis/admissionregistration.k8s.io/v1"
    kinds = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
    return {
        base64.b64decode(webhook["clientConfig"]["caBundle"])
        for kind in kinds
        for webhook in cluster.get(f"{base}/{kind}/drawbridge")["webhooks"]
    }


def served(gate):
    """The certificate that the gate shows to a new connection."""
    with socket.create_connection(("127.0.0.1", gate.port), timeout=5) as raw, gate.trust().wrap_socket(raw, server_hostname="127.0.0.1") as tls:  # fmt: skip
        return tls.getpeercert(binary_form=True)


def test_an_authority_is_succeeded_and_no_call_fails(control_plane, gated, gate):
    first = held(control_plane)
    with Calls(control_plane, gated) as calls:
        both = take(control_plane, Step.INTRODUCE)
        control_plane.until("both are believed", lambda: believed(control_plane) == {both.bundle}, 40)
        before = served(gate)
        new = take(control_plane, Step.SWITCH)
        control_plane.until("the new leaf is served", lambda: served(gate) != before, 40)
        control_plane.until("the old one is still believed", lambda: believed(control_plane) == {new.bundle}, 40)
        last = take(control_plane, Step.RETIRE)
        control_plane.until("the old one is forgotten", lambda: believed(control_plane) == {last.bundle}, 40)
        answered = calls.answered
        control_plane.until("calls go on", lambda: calls.answered > answered + 20, 20)
    assert calls.failures == []
    assert held(control_plane).phase is Phase.STEADY
    assert first.authority.certificate not in last.bundle
    assert authority.signed_by(last.leaf.certificate, last.authority.certificate)


def test_a_secret_that_was_deleted_is_made_again(control_plane, gated, gate):
    """The worst case: no overlap is left to keep, so calls may fail for seconds, and then work without a person."""
    control_plane.delete(PATH)
    item = pod("p", gated, container(**limits(**{"nvidia.com/gpu": 1, "nvidia.com/gpumem": 100})))

    def works():
        try:
            return control_plane.create(item, dryRun="All") and held(control_plane).phase is Phase.STEADY
        except Exception:  # noqa: BLE001  any failure means: not yet
            return False

    control_plane.until("reviews are answered under a new authority", works, 60)
