"""The Secret that replicas share: read it, do what rotation says, write it back with the version that was read.

Any replica may do any step; two that try at once collide on the resourceVersion and the loser reads again. A kill between
any two writes is harmless, because the phase is what the Secret holds (`certs.rotation`).
"""

from __future__ import annotations

import datetime as dt
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from typing import TYPE_CHECKING

from certs import inject, material
from certs.rotation import Policy, Step, step
from cluster import resources
from cluster.errors import AlreadyExists, Conflict, NotFound
from cluster.patch import Merge

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from certs.material import Material
    from cluster.objects import Secret
    from cluster.protocol import Cluster

ATTEMPTS = 10


class Store:
    """The shared Secret `namespace/name`, holding certificates for `names`."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        namespace: str,
        name: str,
        names: Sequence[str],
        webhooks: Sequence[str] = (),
        policy: Policy | None = None,
        once: Mapping[str, Callable[[], bytes]] | None = None,
        now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC),
    ) -> None:
        """`webhooks` are the configurations that must carry our bundle; `once` makes other entries that are missing."""
        self._cluster = cluster
        self._namespace = namespace
        self._name = name
        self._names = names
        self._webhooks = webhooks
        self._policy = policy or Policy()
        self._once = once or {}
        self._now = now

    async def sync(self) -> tuple[Material, dict[str, bytes]]:
        """Bring Secret and webhook configurations up to date; return the certificates and the other entries."""
        for _ in range(ATTEMPTS):
            secret = await self._read()
            data = _decoded(secret)
            held = material.decode(data)
            everywhere = bool(held.bundle) and await inject.ensure(self._cluster, self._webhooks, held.bundle)
            missing = {name: make() for name, make in self._once.items() if not data.get(name)}
            due = step(
                material.view(held, self._names, bundle_everywhere=everywhere), now=self._now(), policy=self._policy
            )
            if due is None and not missing:
                return held, {name: data[name] for name in self._once}
            await self._write(secret, data, held, due, missing)
        raise Conflict(f"Secret {self._namespace}/{self._name} keeps changing under us; is another program writing it?")

    async def read(self) -> tuple[Material, dict[str, bytes]]:
        """Read what is there and change nothing, for a process without the right to write."""
        data = _decoded(await self._read())
        return material.decode(data), {name: data[name] for name in self._once if data.get(name)}

    async def _read(self) -> Secret | None:
        try:
            return await self._cluster.get(resources.SECRETS, self._name, self._namespace)
        except NotFound:
            return None

    async def _write(
        self,
        secret: Secret | None,
        data: Mapping[str, bytes],
        held: Material,
        due: Step | None,
        missing: dict[str, bytes],
    ) -> None:
        if due is not None:
            held = material.apply(held, due, self._names, now=self._now(), policy=self._policy)
        wanted = material.encode(held) | missing
        text = {name: b64encode(value).decode() for name, value in wanted.items()}
        try:
            if secret is None:
                await self._cluster.create(resources.SECRETS, self._fresh(text), self._namespace)
                return
            gone = {name: None for name in data if name in material.ENTRIES and name not in wanted}
            body = {"metadata": {"resourceVersion": secret.metadata.resource_version}, "data": text | gone}
            await self._cluster.patch(resources.SECRETS, self._name, Merge(body), self._namespace)
        except (AlreadyExists, Conflict, NotFound):
            return  # another replica was first: read again

    def _fresh(self, data: Mapping[str, str]) -> dict[str, object]:
        metadata = {
            "name": self._name,
            "namespace": self._namespace,
            "labels": {"app.kubernetes.io/name": "drawbridge"},
        }
        return {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": metadata, "data": dict(data)}


def _decoded(secret: Secret | None) -> dict[str, bytes]:
    data = {}
    for name, text in (secret.data if secret else {}).items():
        try:
            data[name] = b64decode(text, validate=True)
        except Base64Error:
            continue  # counts as not there, and is made anew
    return data
