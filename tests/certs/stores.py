"""Stores of certificate Secrets on an embedded cluster, with webhook configurations and a clock that the test sets."""

import datetime as dt
import itertools
from base64 import b64decode

from certs.material import Names
from certs.rotation import Policy
from certs.store import SecretStore
from cluster import resources

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
DAY = dt.timedelta(days=1)
POLICY = Policy(authority_life=300 * DAY, leaf_life=90 * DAY, pause=dt.timedelta(minutes=10))
NAMES = Names(webhook=("drawbridge.default.svc",), allocator=("drawbridge-reservations.default.svc",))


def webhook_configuration(kind, *, bundle=None):
    client = {"service": {"namespace": "default", "name": "drawbridge", "path": "/mutate"}}
    if bundle:
        client["caBundle"] = bundle
    webhook = {
        "name": "a.drawbridge.dev",
        "clientConfig": client,
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": "drawbridge"},
        "webhooks": [webhook, webhook | {"name": "b.drawbridge.dev"}],
    }


CONFIGURATIONS = [
    webhook_configuration("MutatingWebhookConfiguration"),
    webhook_configuration("ValidatingWebhookConfiguration", bundle="b2xk"),
]


class Clock:
    def __init__(self):
        self.now = NOW

    def __call__(self):
        return self.now


def store(cluster, clock, **kwargs):
    kwargs.setdefault("new_signing_key", lambda: b"k" * 32)
    kwargs.setdefault("names", NAMES)
    return SecretStore(cluster, namespace="default", name="drawbridge", webhooks=["drawbridge"], policy=POLICY, now=clock, **kwargs)  # fmt: skip


async def bundles(cluster):
    """Return the CA bundles of all webhooks in the cluster."""
    found_bundles = []
    for resource in (resources.MUTATING_WEBHOOKS, resources.VALIDATING_WEBHOOKS):
        configuration = await cluster.get(resource, "drawbridge")
        found_bundles += [b64decode(webhook.client_config.ca_bundle) for webhook in configuration.webhooks]
    return found_bundles


class Interrupted:
    """A cluster for a client that pauses before one of its calls. `meanwhile` runs during the pause."""

    def __init__(self, cluster, call_number, meanwhile):
        self._cluster, self._call_number, self._meanwhile = cluster, call_number, meanwhile
        self._calls = itertools.count(1)

    def __getattr__(self, name):
        call = getattr(self._cluster, name)

        async def called(*arguments):
            if next(self._calls) == self._call_number:
                await self._meanwhile()
            return await call(*arguments)

        return called


async def data_of(cluster, name):
    return (await cluster.get(resources.SECRETS, name, "default")).data


# The entries of each Secret after a first start.
SECRET_ENTRIES = {
    "drawbridge": {"tls.crt", "tls.key", "ca.crt"},
    "drawbridge-authority": {"authority.crt", "authority.key", "since", "signature.key"},
    "drawbridge-signature": {"signature.key"},
    "drawbridge-reservations": {"tls.crt", "tls.key", "ca.crt"},
}
