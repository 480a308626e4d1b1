"""What the rules read of a pod, and nothing else: pods with one gist are decided alike, whatever else they say.

A pod of 5 kB is mostly what no rule reads: variables, volumes, images, commands, labels and annotations of others. The gist is what is
left without them, and without the pod's name, which no rule reads and the seal covers. It lists what is read, so a rule that reads
something new has to have it listed here or in `webhook.translate.outside_words`; `tests/webhook/service/test_alike.py` changes every
value of a corpus of pods and holds both to it.

A pod that has not the expected shape has no gist, and is decided by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import UNSET, Raw, UnsetType

from dra.wire import Wire
from webhook.admission import REVIEW
from webhook.state import covers, workload
from webhook.translate import outside_words

if TYPE_CHECKING:
    from dra.wire import Json
    from webhook.state import Configuration

# Stands for labels, and for annotations, that no rule reads: that there are any is read. Nobody's own may be called so.
_OTHERS = {"": ""}
_Words = dict[str, str] | UnsetType


class _ReviewedPart(msgspec.Struct, rename="camel", omit_defaults=True, gc=False):
    """A part of a review. What is not there stays away; what has another shape makes the review one without a gist."""


class _ReviewedMetadata(_ReviewedPart, gc=False):
    name: str = ""
    generate_name: str = ""
    labels: _Words = UNSET
    annotations: _Words = UNSET
    owner_references: Raw | UnsetType = UNSET


class _ReviewedSecurity(_ReviewedPart, gc=False):
    privileged: bool | UnsetType = UNSET


class _ReviewedContainer(_ReviewedPart, gc=False):
    name: str | UnsetType = UNSET
    resources: Raw | UnsetType = UNSET
    restart_policy: Raw | UnsetType = UNSET
    security_context: _ReviewedSecurity | UnsetType | None = UNSET
    env: Raw | UnsetType = UNSET


class _ReviewedSpec(_ReviewedPart, gc=False):
    containers: list[_ReviewedContainer] | UnsetType = UNSET
    init_containers: list[_ReviewedContainer] | UnsetType = UNSET
    service_account_name: str = ""
    scheduler_name: Raw | UnsetType = UNSET
    node_name: Raw | UnsetType = UNSET
    node_selector: Raw | UnsetType = UNSET
    affinity: Raw | UnsetType = UNSET
    host_network: Raw | UnsetType = UNSET
    resource_claims: Raw | UnsetType = UNSET


class _ReviewedPod(_ReviewedPart, gc=False):
    metadata: _ReviewedMetadata
    spec: _ReviewedSpec


class _ReviewedKind(Wire, frozen=True, kw_only=True):
    group: str = ""
    kind: str = ""


class _ReviewedResource(Wire, frozen=True, kw_only=True):
    group: str = ""
    resource: str = ""


class _ReviewedUser(Wire, frozen=True, kw_only=True):
    username: str = ""


class _ReviewedRequest(_ReviewedPart, gc=False):
    uid: str
    object: _ReviewedPod
    kind: _ReviewedKind
    resource: _ReviewedResource
    operation: str
    namespace: str
    sub_resource: str = ""
    name: str = ""
    dry_run: bool | None = None
    user_info: _ReviewedUser = _ReviewedUser()


class _ReviewedWhole(_ReviewedPart, gc=False):
    api_version: str
    kind: str
    request: _ReviewedRequest


_PODS = _ReviewedResource(resource="pods")
_POD = _ReviewedKind(kind="Pod")
_read = msgspec.json.Decoder(_ReviewedWhole).decode
_write = msgspec.json.Encoder().encode


class Gist(NamedTuple):
    """A review by what is decided on, and beside it what is only repeated in its answer."""

    key: tuple[str, bool, bytes]
    uid: str
    namespace: str
    # Whose seal it will be: the name that pods of one controller share, where they do.
    bearer: str
    account: str
    # What the pod is called.
    name: str
    # ... and by who asks.
    asked_name: str
    user: str
    dry_run: bool
    size: int


class GistReader:
    """Reads the gist of reviews, for one configuration."""

    def __init__(self, configuration: Configuration) -> None:
        self._words = outside_words(configuration)
        self._variables = bool(configuration.variables)
        self._canary = configuration.file.canary
        # A choice of sides reads the whole pod.
        self._reads_all = bool(configuration.file.mixed)

    def read(self, body: bytes) -> Gist | None:
        """Read a review of a pod that is created; None for any other, and for one that has not the expected shape."""
        if self._reads_all:
            return None
        try:
            review = _read(body)
            request = review.request
            pod = request.object
            metadata, spec = pod.metadata, pod.spec
            if (review.api_version, review.kind) != REVIEW or not _is_creation(request):
                return None
            name, generated = metadata.name, metadata.generate_name
            covered = self._is_covered(request.namespace, metadata)
            self._reduce(metadata, spec)
            text = _write(pod)
        except (msgspec.MsgspecError, RecursionError, UnicodeError):
            return None
        called = name or f"{generated}*"
        return Gist(
            key=(request.namespace, covered, text),
            uid=request.uid,
            namespace=request.namespace,
            bearer=generated or name,
            account=spec.service_account_name,
            name=called,
            asked_name=request.name or called,
            user=request.user_info.username,
            dry_run=bool(request.dry_run),
            size=len(body),
        )

    def _is_covered(self, namespace: str, metadata: _ReviewedMetadata) -> bool:
        """Whether a partial roll-out covers the pod's workload: that alone is read of its owners."""
        if self._canary >= 100:
            return True
        raw: Json = msgspec.json.decode(_write(metadata))
        return covers(workload(namespace, raw), self._canary)

    def _reduce(self, metadata: _ReviewedMetadata, spec: _ReviewedSpec) -> None:
        metadata.name = metadata.generate_name = ""
        metadata.owner_references = UNSET
        metadata.labels = self._pick(metadata.labels)
        metadata.annotations = self._pick(metadata.annotations)
        if self._variables:
            return
        for containers in (spec.containers, spec.init_containers):
            for container in containers or ():
                container.env = UNSET

    def _pick(self, words: _Words) -> _Words:
        if not words or self._words.issuperset(words):
            return words
        picked = {key: value for key, value in words.items() if key in self._words}
        return picked | _OTHERS


def _is_creation(request: _ReviewedRequest) -> bool:
    created = request.operation == "CREATE" and not request.sub_resource
    return created and request.resource == _PODS and request.kind == _POD and bool(request.uid)
