"""AdmissionReviews of pods and claims for the allocator's quota listener, which refuses objects that would exceed a DeviceQuota."""

import json

import aiohttp

from allocator.service import LeaderIdentity, Reviewing
from runtime.http import Address
from tests.allocator.service.sidecar import pod
from tests.limits import PATIENCE
from tests.objects import admission_review, claim_template, exactly
from webhook.admission import future_claims_of_pod, review_quota

# A long timeout: on a busy machine a hundred reviews that a follower forwards to the leader take longer than an API server waits.
QUOTA_LISTENER = {
    "reviewing": Reviewing(review_quota, future_claims_of_pod),
    "quota": Address("127.0.0.1", 0),
    "quota_trust": LeaderIdentity(seconds=PATIENCE),
}


def template_of(name, count=1):
    return claim_template(name, exactly(count=count))


def pod_using(name, *templates, **spec):
    """Return a pod that gets a claim from each of these ResourceClaimTemplates."""
    entries = [{"name": f"e{i}", "resourceClaimTemplateName": template} for i, template in enumerate(templates)]
    return pod(name, resourceClaims=entries, **spec)


def review_of(obj, *, dry_run=False, operation="CREATE"):
    group = "" if obj["kind"] == "Pod" else "resource.k8s.io"
    kind = {"group": group, "version": "v1", "kind": obj["kind"]}
    namespace = obj["metadata"]["namespace"]
    return admission_review(obj, operation=operation, kind=kind, namespace=namespace, dryRun=dry_run)


async def post(address, body, **headers):
    async with aiohttp.ClientSession() as session, session.post(f"http://{address}/quota", data=body, headers=headers) as response:  # fmt: skip
        return response.status, await response.json(content_type=None)


async def refusal(sidecar, obj, **options):
    """Return the message with which the quota listener refuses an object, or "" if it admits the object."""
    status, answer = await post(sidecar.listening.quota, json.dumps(review_of(obj, **options)))
    if status != 200:
        return f"{status}: {answer['error']}"
    response = answer["response"]
    assert response["allowed"] == ("status" not in response)
    return "" if response["allowed"] else response["status"]["message"]


def pending_devices(sidecar):
    """Return how many devices the pods and claims request that are admitted and have no reservation yet."""
    admission = sidecar.service._admission
    [quota] = sidecar.service.knowledge.quotas.objects.values()
    stock = sidecar.service.knowledge.stock
    pending = admission.pending.waiting(
        quota,
        stock,
        demand=lambda spec: admission._demands.upper_bound(spec, stock),
        find_pod=sidecar.service.knowledge.pod,
        find_spec=admission._spec,
    )
    return pending.get(("gpu", "devices"), 0) // 10**9  # amounts are in billionths
