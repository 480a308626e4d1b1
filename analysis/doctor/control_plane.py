"""Findings about the API server, about Kubernetes' own controllers, and about how the API server calls drawbridge's webhook."""

from __future__ import annotations

from datetime import timedelta
from itertools import chain
from typing import TYPE_CHECKING, Any

from analysis.installation import LEASES
from analysis.refused_pods import QUOTED
from cluster.objects import Lease
from dra.finding import Finding, make_finding
from dra.raw import items, moment, text
from webhook import names, registration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from analysis.doctor.observed import DoctorInput


_SILENT = timedelta(seconds=45)  # nodes and API servers renew their leases every ten seconds, controllers every two
_RENEWED = 4  # a Lease that was not renewed for this multiple of its duration is idle
_CONTROLLERS = {
    "kube-controller-manager": "no claim is created from a template, and no ReplicaSet or Job creates pods",
    "kube-scheduler": "no pod of its profiles is placed",
}


def nothing_stored(observed: DoctorInput) -> Iterator[Finding]:
    """An API server that answers requests but stores nothing, not even its own Lease."""
    renewals = _renewals(observed)
    renewed = {key: at for key, at in renewals.items() if key.rpartition("/")[2] not in LEASES}
    if not renewed:
        return
    last = max(renewed, key=lambda key: renewed[key])
    silent = observed.now - max(renewals.values())
    if silent > _SILENT:
        yield make_finding(
            "O020",
            f"Lease/{last}",
            f"no Lease was renewed for {silent.total_seconds():.0f} s: the API server answers but stores nothing, as when etcd has no space (NOSPACE) or no quorum",
        )


def idle_controllers(observed: DoctorInput) -> Iterator[Finding]:
    """Kubernetes' own controllers and scheduler without a leading replica."""
    renewals = _renewals(observed)
    newest = max(renewals.values(), default=observed.now)
    for name, without in _CONTROLLERS.items():
        renewed_at = renewals.get(f"kube-system/{name}")
        # Compare with the newest Lease: while the API server stores nothing, no Lease is renewed (`nothing_stored`).
        if renewed_at is not None and newest - renewed_at > _SILENT:
            yield make_finding(
                "O017",
                f"Lease/kube-system/{name}",
                f"no {name} has renewed it for {(observed.now - renewed_at).total_seconds():.0f} s: {without}",
                f"check that {name} runs on the control plane; its log, and the events of its pods, say what prevents it",
            )


def _renewals(observed: DoctorInput) -> dict[str, Any]:
    """Return when each held Lease was renewed. A time far in the future comes from a wrong clock, and is left out."""
    held = [lease for lease in observed.reading.typed.of_type(Lease) if lease.spec.holder_identity]
    leases = ((lease.metadata.key, moment(lease.spec.renew_time)) for lease in held)
    return {key: at for key, at in leases if at is not None and at - observed.now <= _SILENT}


def not_reached(observed: DoctorInput) -> Iterator[Finding]:
    """A registered webhook that the API server cannot reach."""
    if observed.why_not_called:
        yield make_finding(
            "O015",
            f"MutatingWebhookConfiguration/{names.NAME}",
            f"the API server cannot reach the webhook, as a dry-run pod showed: {observed.why_not_called[:QUOTED]}",
            basis="a dry run of a pod",
        )


def names_not_sent(observed: DoctorInput) -> Iterator[Finding]:
    """A webhook configuration whose matchConditions lack configured keys, so that the API server does not send pods with these keys."""
    unsent: set[str] = set()
    if observed.configuration is not None and observed.parts is not None:
        for configuration in observed.parts.of_kinds("MutatingWebhookConfiguration"):
            for match in chain.from_iterable(
                items(hook, "matchConditions") for hook in items(configuration, "webhooks")
            ):
                unsent.update(registration.names_not_sent_by(text(match.get("expression")), observed.configuration))
    if unsent:
        yield make_finding(
            "O016",
            f"MutatingWebhookConfiguration/{names.NAME}",
            f"pods with these keys, or keys of these domains, do not reach the webhook, and are admitted as written: {', '.join(sorted(unsent))}",
        )


def idle_leases(observed: DoctorInput) -> Iterator[Finding]:
    """Leases of drawbridge that no replica renews."""
    for lease in observed.reading.typed.of_type(Lease):
        spec = lease.spec
        renewed = moment(spec.renew_time)
        if lease.metadata.name not in LEASES or not spec.holder_identity or renewed is None:
            continue
        silent = (observed.now - renewed).total_seconds()
        if silent > _RENEWED * (spec.lease_duration_seconds or 15):
            yield make_finding(
                "O017",
                f"Lease/{lease.metadata.namespace}/{lease.metadata.name}",
                f"{spec.holder_identity} has not renewed it for {silent:.0f} s, and no other replica has taken it",
            )
