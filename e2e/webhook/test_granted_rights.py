"""The accounts of the installation have the rights that they use, and no more.

The tests read the audit log of the whole session. So this module runs before modules whose configurations need further rights
(`test_mixed`, `test_networks`).
"""

import base64
import json

import pytest

from e2e.actors.rights import check_rights
from e2e.actors.webhook import MODE, NOWHERE, SYSTEM, gpu, templates_of, untouched

pytestmark = pytest.mark.real
REGISTRATION = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/drawbridge"
AUTHORITY = f"system:serviceaccount:{SYSTEM}:drawbridge-authority"


def test_the_authoritys_token_writes_the_bundle_and_nothing_else(control_plane, webhook):
    before = control_plane.get(REGISTRATION)
    bundle = before["webhooks"][0]["clientConfig"]["caBundle"]

    def patched(*operations):
        patch = json.dumps(list(operations))
        return control_plane.kubectl(
            "patch", "mutatingwebhookconfiguration", "drawbridge", f"--as={AUTHORITY}", "--type=json",
            f"--patch={patch}", "--dry-run=server", check=False,
        )  # fmt: skip

    def change(path, value):
        return {"op": "add", "path": path, "value": value}

    twice = base64.b64encode(base64.b64decode(bundle) * 2).decode()
    fine = patched(change("/webhooks/0/clientConfig/caBundle", twice))
    assert fine.returncode == 0, fine.stderr
    everything = {"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"], "operations": ["*"], "scope": "*"}
    for path, value in {
        "/webhooks/0/clientConfig/url": "https://evil.example:443/mutate",
        "/webhooks/0/rules": [everything],
        "/webhooks/0/failurePolicy": "Ignore" if before["webhooks"][0]["failurePolicy"] == "Fail" else "Fail",
        "/webhooks/0/matchConditions": [],
        "/webhooks/0/namespaceSelector": {},
        "/webhooks/0/objectSelector": {},
        "/webhooks/0/timeoutSeconds": 30,
        "/webhooks/0/reinvocationPolicy": "Never",
        "/webhooks/0/name": "other.drawbridge.dev",
        "/webhooks": [],
        "/metadata/annotations": {"drawbridge.dev/rules": "{}"},
        "/metadata/finalizers": ["example.com/stay"],
    }.items():
        done = patched(change(path, value))
        assert done.returncode, f"{path} could be changed"
        assert "drawbridge-registration" in done.stderr, done.stderr
    control_plane.patch(REGISTRATION, {"metadata": {"labels": {"an-administrator": "may"}}})
    control_plane.patch(REGISTRATION, {"metadata": {"labels": {"an-administrator": None}}})


# Unused, and needed: the reason of each.
SPARE = {
    ("*", "*", "list"): "servers that do not stream lists are asked for pages",
    ("drawbridge.dev", "reservedtemplates", "create"): "asked for by the policy, in the API server",
}


def test_every_granted_right_is_used_and_no_other_is_requested(control_plane, fleet_node, gated, webhook):
    """The audit log of this session shows which rights are used."""
    where = f"/api/v1/namespaces/{gated}"
    control_plane.patch(where, {"metadata": {"labels": {MODE: "off"}}})
    control_plane.create(untouched(control_plane, gpu("late", gated, nodeSelector=NOWHERE)))
    control_plane.wait_unschedulable(gated, "late")
    control_plane.patch(where, {"metadata": {"labels": {MODE: "enforce"}}})
    control_plane.until(
        "it is told", lambda: any("delete the pod" in event for event in control_plane.events(gated, "late")), 30
    )
    control_plane.create(gpu("p", gated, nodeSelector=NOWHERE))
    control_plane.until("the template is made", lambda: templates_of(control_plane, gated), 20)
    control_plane.delete(f"/api/v1/namespaces/{gated}/pods/p", gracePeriodSeconds=0)
    control_plane.until("and swept", lambda: not templates_of(control_plane, gated), 90)
    control_plane.patch(f"/api/v1/namespaces/{SYSTEM}/secrets/drawbridge", {"data": {"tls.crt": None}})
    control_plane.until("the leaf is made again", lambda: "tls.crt" in control_plane.get(f"/api/v1/namespaces/{SYSTEM}/secrets/drawbridge")["data"], 30)  # fmt: skip
    wiped = [{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]
    control_plane.patch(REGISTRATION, wiped, kind="json")
    control_plane.until("the bundle is back", lambda: control_plane.get(REGISTRATION)["webhooks"][0]["clientConfig"].get("caBundle"), 30)  # fmt: skip
    for role in ("webhook", "controller", "authority"):
        check_rights(control_plane, f"drawbridge-{role}", SPARE)
