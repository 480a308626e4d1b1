"""Keeps the four shared Secrets: reads them, applies the due rotation step, and writes them with the versions that were read.

Any replica of the authority process can take any step. If two replicas try at once, the resourceVersion makes the write of one fail, and
this replica reads again. A step is written to the authority's Secret first, because this Secret determines the phase. The other Secrets
follow: a leaf that the current CA has not signed is signed again, and until then the leaf's CA is still in every bundle. So a kill between
two writes is harmless. The Secret that is written first is read last. If a replica is delayed between two reads while other replicas switch
CAs, its write fails because of an old resourceVersion, so it does not sign with an old CA.
"""

from __future__ import annotations

import datetime as dt
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from typing import TYPE_CHECKING

from certs import inject, material
from certs.rotation import Policy, step
from cluster import resources
from cluster.errors import AlreadyExists, Conflict, Invalid, NotFound
from cluster.patch import Merge

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from certs.material import Material, Names, SigningKeys
    from cluster.objects import Secret
    from cluster.protocol import Cluster

ATTEMPTS = 10
OPAQUE = "Opaque"


class SecretStore:
    """The shared Secrets `namespace/name`, `name-authority`, `name-signature` and `name-reservations`, with certificates for `names`."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        namespace: str,
        name: str,
        names: Names,
        new_signing_key: Callable[[], bytes],
        webhooks: Sequence[str] = (),
        policy: Policy | None = None,
        now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC),
    ) -> None:
        """`webhooks` are the configurations that must have the CA bundle; `new_signing_key` creates a key."""
        self._cluster = cluster
        self._namespace = namespace
        self._name = name
        self._names = names
        self._new_signing_key = new_signing_key
        self._webhooks = webhooks
        self._policy = policy or Policy()
        self._now = now

    async def sync(self) -> Material:
        """Bring Secrets and webhook configurations up to date; return the content of the Secrets."""
        name = self._name
        authority_secret = authority_name(name)
        signature_secret = signature_name(name)
        for _ in range(ATTEMPTS):
            configurations = await inject.read_webhooks(self._cluster, self._webhooks)
            allocator = await self._read(allocators_name(name)) if self._names.allocator else None
            serving = await self._read(name)
            signing = await self._read(signature_secret)
            authority_data = await self._read(authority_secret)
            data = material.Data(_decode(serving), _decode(authority_data), _decode(signing), _decode(allocator))
            stored = material.decode(data)
            bundle_everywhere = False
            if stored.bundle:
                bundle_everywhere = await inject.ensure_bundle(self._cluster, configurations, stored.bundle)
            with_signing_key = material.ensure_signing_key(stored, self._new_signing_key)
            now, names, policy = self._now(), self._names, self._policy
            next_step = step(
                material.view(with_signing_key, names, bundle_everywhere=bundle_everywhere), now=now, policy=policy
            )
            wanted_material = with_signing_key
            if next_step is not None:
                wanted_material = material.apply(
                    with_signing_key, next_step, names, now=now, policy=policy, new_signing_key=self._new_signing_key
                )
            wanted_data = material.encode(wanted_material)
            if not await self._write(authority_data, authority_secret, wanted_data.authority or {}):
                continue
            # Signing keys are written to the Secret for verification before any replica signs with them.
            if not await self._write(signing, signature_secret, wanted_data.signing or {}):
                continue
            if not await self._write(serving, name, wanted_data.serving or {}):
                continue
            if self._names.allocator and not await self._write(
                allocator, allocators_name(name), wanted_data.allocator or {}
            ):
                continue
            read = {
                authority_secret: authority_data,
                signature_secret: signing,
                name: serving,
                allocators_name(name): allocator,
            }
            if wanted_material == stored and await self._are_unchanged(read):
                return stored
        raise Conflict(f"Secret {self._namespace}/{name} keeps changing; is another program writing it?")

    async def _are_unchanged(self, read: Mapping[str, Secret | None]) -> bool:
        """Report whether the Secrets still have the versions that were read one after the other."""
        for name, secret in read.items():
            if secret is None:
                continue
            current = await self._read(name)
            if current is None or current.metadata.resource_version != secret.metadata.resource_version:
                return False
        return True

    async def read(self) -> Material:
        """Read the serving and signing Secrets; the webhook has no permission to do more."""
        serving, signing = await self._read(self._name), await self._read(signature_name(self._name))
        return material.decode(material.Data(_decode(serving), {}, _decode(signing)))

    async def signing_keys(self) -> SigningKeys:
        """Read only the signing keys, for a process that does not serve with the certificate of these Secrets."""
        signing = await self._read(signature_name(self._name))
        return material.decode(material.Data(signing=_decode(signing))).signing_keys

    async def _read(self, name: str) -> Secret | None:
        """Read a Secret. A type other than Opaque is an error: another program owns the Secret, or Kubernetes may write into it."""
        try:
            secret = await self._cluster.get(resources.SECRETS, name, self._namespace)
        except NotFound:
            return None
        if secret.type != OPAQUE:
            raise Invalid(
                f"Secret {self._namespace}/{name} has type {secret.type!r}, but drawbridge keeps keys only in Secrets of type {OPAQUE}: "
                "delete it, and find out who created it"
            )
        return secret

    async def _write(self, secret: Secret | None, name: str, wanted: Mapping[str, bytes]) -> bool:
        """Write the entries of a Secret that differ; False if another replica was faster."""
        data = secret.data if secret else {}
        changed: dict[str, str | None] = {}
        for entry, value in wanted.items():
            encoded = b64encode(value).decode()
            if data.get(entry) != encoded:
                changed[entry] = encoded
        for entry in data:
            if entry in material.ENTRIES and entry not in wanted:
                changed[entry] = None
        if secret is not None and not changed:
            return True
        try:
            if secret is None:
                labels = {"app.kubernetes.io/name": "drawbridge"}
                metadata = {"name": name, "namespace": self._namespace, "labels": labels}
                new_secret = {
                    "apiVersion": "v1",
                    "kind": "Secret",
                    "type": OPAQUE,
                    "metadata": metadata,
                    "data": changed,
                }
                await self._cluster.create(resources.SECRETS, new_secret, self._namespace)
            else:
                precondition = {"resourceVersion": secret.metadata.resource_version}
                patch = Merge({"metadata": precondition, "data": changed})
                await self._cluster.patch(resources.SECRETS, name, patch, self._namespace)
        except (AlreadyExists, Conflict, NotFound):
            return False  # another replica was first: read again
        return True


def authority_name(name: str) -> str:
    """Return the name of the Secret with the CA, which only the authority process reads."""
    return f"{name}-authority"


def signature_name(name: str) -> str:
    """Return the name of the Secret with the signing keys, which webhook, controller and authority read."""
    return f"{name}-signature"


def allocators_name(name: str) -> str:
    """Return the name of the Secret with the allocator's leaf for reservations, which the allocator's pod mounts."""
    return f"{name}-reservations"


def _decode(secret: Secret | None) -> dict[str, bytes] | None:
    if secret is None:
        return None
    data = {}
    for name, text in secret.data.items():
        try:
            data[name] = b64decode(text, validate=True)
        except Base64Error:
            continue  # counts as missing, and is created again
    return data
