"""The annotations of a translated pod: written, read, and verified, so that no key is translated twice.

| annotation | holds |
|---|---|
| `original` | the removed keys by container, which of them were annotations, and the scheduler's name |
| `decision` | what became of each key, and the version that decided it |
| `devices` | counts and models, for tools that read the old keys |
| `templates` | the signed specs of the claims (`webhook.claims.template`) |

The signature covers the text of `original`, which holds a digest of `decision` and `devices`. Pod authors can write all four: a record
that does not verify is removed and never read. A verified record counts only if each container in it uses a claim of ours, because
annotations can be copied between pods of one workload. Files have no signature; there the claims alone decide.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from allocator.decisions import STRATEGY
from dra.raw import decoded, mapping, members
from dra.wire import Json
from webhook import names
from webhook.claims import template

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from webhook.translate.pod_view import PodView

# The API server's limit for all annotations of an object, in bytes.
LARGEST = 256 * 1024
_DIGITS = 16  # of a digest, in hex


class Original(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The pod before its translation: each container's removed keys, and its scheduler if that was changed."""

    containers: dict[str, dict[str, Json]] = {}
    # The removed keys that were annotations of the pod.
    annotations: tuple[str, ...] = ()
    scheduler_name: str | None = None
    # The new scheduler, so that a replay needs no configuration.
    scheduled_by: str | None = None
    # The digest of the annotations `decision` and `devices`.
    digest: str = ""

    @property
    def removed_annotations(self) -> dict[str, Json]:
        return {key: keys[key] for keys in self.containers.values() for key in self.annotations if key in keys}

    def join(self, later: Original) -> Original:
        """Add the record of a later round. If both records have a key, the first amount stays."""
        containers = {**later.containers, **self.containers}
        for name in self.containers.keys() & later.containers.keys():
            containers[name] = {**later.containers[name], **self.containers[name]}
        return Original(
            containers=containers,
            annotations=tuple(dict.fromkeys((*self.annotations, *later.annotations))),
            scheduler_name=self.scheduler_name if self.scheduled_by else later.scheduler_name,
            scheduled_by=later.scheduled_by or self.scheduled_by,
        )


class WrittenRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The annotations of one round on a pod, decoded."""

    record: Original = Original()
    decisions: tuple[Json, ...] = ()
    devices: dict[str, Json] = {}
    templates: dict[str, Json] = {}
    # The bridge's strategy for the pod, "" if the pod names its own or needs none. It is never read back.
    strategy: str = ""


NOTHING_WRITTEN = WrittenRecord()


def read_record(pod: PodView, namespace: str, keys: Sequence[bytes], *, offline: bool = False) -> WrittenRecord:
    """Read our annotations on a pod; NOTHING_WRITTEN if another writer wrote them. In a file (`offline`) there may be no signature."""
    if not keys and not offline:
        return NOTHING_WRITTEN
    written = verified_record(pod.annotations, template.identify_raw(pod.raw, namespace), keys)
    if written is None or not _has_claims_for(written.record, pod):
        return NOTHING_WRITTEN
    return written


def verified_record(
    annotations: Mapping[str, Json], pod: template.SignedPod, keys: Sequence[bytes]
) -> WrittenRecord | None:
    """Read our annotations for this pod; None if another writer wrote them. Without keys, no signature is required."""
    record = _original(annotations.get(names.ORIGINAL))
    if record is None:
        return None
    decision, devices = annotations.get(names.DECISION), annotations.get(names.DEVICES)
    templates: dict[str, Json] = {}
    if keys:
        try:
            templates = template.verify(str(annotations.get(names.TEMPLATES)), pod, *keys)
        except template.TemplatesError:
            return None
        if record.digest != digest(decision, devices):
            return None
    return WrittenRecord(
        record=record,
        decisions=tuple(members(mapping(decoded(decision)).get("decisions"))),
        devices=mapping(decoded(devices)),
        templates=templates,
    )


def annotate(
    pod: PodView, before: WrittenRecord, now: WrittenRecord, *, namespace: str, key: bytes | None
) -> dict[str, Json] | None:
    """Return our annotations: the record of an earlier round (`before`) joined with the record of this round (`now`).

    None if the pod's annotations would be larger than the API server accepts.
    """
    record = now.record if before is NOTHING_WRITTEN else before.record.join(now.record)
    decisions = (*before.decisions, *now.decisions)
    decision = _text({"version": names.VERSION, "decisions": decisions})
    devices = _text({**before.devices, **now.devices})
    digest_text = "" if key is None else digest(decision, devices)
    original = _text(replace(record, digest=digest_text))
    annotations: dict[str, Json] = {
        names.DECISION: decision,
        names.DEVICES: devices,
        names.ORIGINAL: original,
    }
    if now.strategy:
        annotations[STRATEGY] = now.strategy
    if key is not None:
        signed_pod = template.identify_raw(pod.raw, namespace, original)
        templates = {**before.templates, **now.templates}
        annotations[names.TEMPLATES] = template.sign(templates, key, signed_pod)
    # The API server counts bytes (apimachinery: ValidateAnnotationsSize). A character has at most four.
    all_annotations = {**pod.annotations, **annotations}
    texts = [*all_annotations, *map(str, all_annotations.values())]
    if 4 * sum(map(len, texts)) <= LARGEST:
        return annotations
    size = sum([len(text.encode(errors="surrogatepass")) for text in texts])
    return annotations if size <= LARGEST else None


def foreign_annotations(pod: PodView, written: WrittenRecord) -> tuple[str, ...]:
    if written is not NOTHING_WRITTEN:
        return ()
    return tuple([name for name in names.ANNOTATIONS if name in pod.annotations])


def is_offline_record(pod: PodView) -> bool:
    """Return whether the record is that of a translated file, which has no signature: the webhook removes it without a warning."""
    record = _original(pod.annotations.get(names.ORIGINAL))
    unsigned = record is not None and not record.digest and names.TEMPLATES not in pod.annotations
    return unsigned and record is not None and _has_claims_for(record, pod)


def removed_annotations(pod: PodView, written: WrittenRecord) -> tuple[str, ...]:
    """List the annotations that an earlier round removed. An unsigned record counts too: at worst, it disables keys of its own pod."""
    record = _original(pod.annotations.get(names.ORIGINAL)) if is_offline_record(pod) else written.record
    return record.annotations if record else ()


def digest(decision: Json, devices: Json) -> str:
    """Hash the two annotations that the signature covers only through this digest."""
    text = f"{decision}\0{devices}".encode(errors="surrogatepass")
    return hashlib.sha256(text).hexdigest()[:_DIGITS]


_read = msgspec.json.Decoder(Original).decode
_encode = msgspec.json.Encoder(order="sorted").encode


def _text(value: object) -> str:
    """Write an annotation's value: one line of JSON, the same for the same value."""
    return _encode(value).decode()


def _original(value: Json) -> Original | None:
    if not isinstance(value, str):
        return None
    try:
        return _read(value)
    except (msgspec.DecodeError, RecursionError):
        return None


def _has_claims_for(record: Original, pod: PodView) -> bool:
    claimed = {slot.name for slot in pod.slots if any(name.startswith(names.PREFIX) for name in slot.claims)}
    return bool(record.containers) and record.containers.keys() <= claimed
