"""One process of drawbridge. It runs the webhook, the controllers and the authority, each of which the settings can turn off.

In a cluster each of the three runs in a process of its own, with few permissions: the webhook writes nothing, the controllers cannot read
the CA's key, and the authority cannot read pods. On a laptop (`drawbridge standalone`) they share one process and the embedded store.
"""

from __future__ import annotations

import asyncio
import secrets
from functools import partial
from typing import TYPE_CHECKING

from certs.change_watch import ChangeWatch
from certs.material import SIGNING_KEY_BYTES, Names
from certs.store import SecretStore, allocators_name, authority_name, signature_name
from cluster.controllers import Election, Recorder
from cluster.informers import Quarantine
from serving.authentication import Callers
from serving.process import run_until
from webhook import registration
from webhook.service.app import WebhookApp
from webhook.service.certificate import Certificate, Origin
from webhook.service.decider import ReviewDecider
from webhook.service.follower import Follower
from webhook.service.metrics import WebhookMetrics
from webhook.service.missed_pods import CONTROLLER, MissedPods
from webhook.service.template_controller import Templates
from webhook.state import StateBuilder

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.protocol import Cluster
    from serving.http import Address
    from serving.process import Work
    from webhook.service.configuration_file import Source
    from webhook.service.log import Decisions
    from webhook.service.settings import WebhookSettings
    from webhook.state import Configuration

# The webhook configurations whose CA bundle the authority maintains.
CONFIGURATIONS = (registration.NAME,)
# The shortest interval between two deletions of unused templates, even if the grace period is 0.
MIN_SWEEP_SECONDS = 1.0


class WebhookServer:
    """The webhook, the controllers and the authority of one process, as its settings choose them."""

    def __init__(
        self, cluster: Cluster, source: Source, settings: WebhookSettings, decisions: Decisions | None = None
    ) -> None:
        self._cluster = cluster
        self._source = source
        self._settings = settings
        self.metrics = WebhookMetrics()
        self.builder = StateBuilder(source.current)
        self.follower = Follower(cluster, self.builder, settings.pace, holders=settings.reviews)
        self.quarantine = Quarantine()  # of the templates controller
        self.certificate = Certificate(
            self._origin(), self._changes(), lambda keys: self.builder.learn(keys=keys), settings.pace
        )
        self.app = WebhookApp(
            ReviewDecider(self.builder, self.follower),
            self.metrics,
            decisions=decisions,
            callers=Callers(settings.credentials),
        )
        self.election = Election(
            cluster,
            namespace=settings.namespace,
            name=registration.NAME,
            identity=settings.identity,
            term=settings.term,
        )
        self._show()

    async def run(self, stop: asyncio.Event, listening: Callable[[Address, Address | None], None]) -> None:
        """Serve until `stop` is set. `listening` is called with the addresses once everything is read and reviews are answered."""
        settings = self._settings
        works: list[Work] = [self.certificate.run]
        if settings.reads_cluster:
            works += [self.follower.run, partial(self._source.follow, self._configure)]
        if settings.controllers:
            works.append(self._lead)
        works.append(partial(self._listen, listening))
        drain = partial(self.app.drain, notice=settings.notice, grace=settings.grace, linger=settings.linger)
        try:
            await run_until(stop, *works, metrics=self.metrics, at=settings.metrics, drain=drain)
        finally:
            self.app.close()

    def _configure(self, new: Configuration) -> None:
        self.builder.configure(new)
        self.metrics.show_configuration(self._source.digest)

    async def _listen(self, listening: Callable[[Address, Address | None], None]) -> None:
        """Listen, and call `listening` when everything is read, which is also when the process becomes ready."""
        listen = self._settings.listen
        if self._settings.reviews:
            context = self.certificate.context
            port = await self.app.start(listen.host, listen.port, context)
            listen = listen._replace(port=port)
        if self._settings.reads_cluster:
            await self.follower.wait_for_sync()
        await self.certificate.wait_until_loaded()
        listening(listen, self.metrics.address)

    async def _lead(self) -> None:
        await self.follower.wait_for_sync()
        await self.certificate.wait_until_loaded()  # the signing keys come with the certificate
        settings = self._settings

        # If the grace period is shorter than the interval, look for unused templates once per grace period.
        sweep_every = min(settings.sweep_every, max(settings.sweep_after, MIN_SWEEP_SECONDS))
        recorder = Recorder(self._cluster, CONTROLLER, instance=settings.identity)

        async def lead() -> None:
            state = self.follower.state
            templates = Templates(
                self._cluster,
                state,
                recorder,
                self.metrics,
                grace=settings.sweep_after,
                sweep_every=sweep_every,
                quarantine=self.quarantine,
            )
            missed = MissedPods(
                self._cluster,
                state,
                recorder,
                self.metrics,
                home=settings.namespace,
                refused=templates.refused,
                every=2 * sweep_every,
            )
            async with asyncio.TaskGroup() as group:
                group.create_task(missed.run())
                group.create_task(templates.run())

        await self.election.run(lead)

    def _origin(self) -> Origin:
        settings = self._settings
        store = SecretStore(
            self._cluster,
            namespace=settings.namespace,
            name=settings.secret,
            names=Names(settings.names, settings.allocator_names),
            webhooks=CONFIGURATIONS,
            policy=settings.policy,
            new_signing_key=lambda: secrets.token_bytes(SIGNING_KEY_BYTES),
        )
        return Origin(store, settings.is_authority, settings.reviews, settings.files)

    def _changes(self) -> ChangeWatch:
        """Watch the Secrets that this process uses; in the authority also the webhook configurations."""
        settings = self._settings
        secrets = [signature_name(settings.secret)]
        if settings.is_authority or (settings.reviews and not settings.files):
            secrets.append(settings.secret)
        if settings.is_authority:
            secrets.append(authority_name(settings.secret))
            secrets.append(allocators_name(settings.secret))
        webhooks = CONFIGURATIONS if settings.is_authority else ()
        return ChangeWatch(self._cluster, namespace=settings.namespace, secrets=secrets, webhooks=webhooks)

    def _show(self) -> None:
        """Register readiness checks, notes and gauges."""
        follower, gauge = self.follower, self.metrics.gauge
        # A stale copy of the cluster is a note and does not make a replica unready: the copies of all replicas would be stale.
        self.metrics.checks = {"cluster": follower.what_is_unread} if self._settings.reads_cluster else {}
        self.metrics.checks["certificate"] = self.certificate.unready
        self.metrics.notes = {
            "stock": follower.stale,
            "namespaces": follower.unsure_namespaces,
            "pods": follower.uncounted,
            "evidence": follower.unread_evidence,
            "server": follower.assumed_gates,
            "objects read": follower.quarantine.note,
            "objects processed": self.quarantine.note,
        }
        self.metrics.more_notes = self._source.notes
        self.metrics.show_configuration(self._source.digest)
        gauge(
            "drawbridge_quarantined_objects",
            "Objects of the cluster that could not be processed and are ignored until they change.",
            lambda: len(follower.quarantine.objects) + len(self.quarantine.objects),
        )
        # A process has only the gauges of its own work: without a certificate it must not show 0 days until expiry.
        if self._settings.reads_cluster:
            gauge(
                "drawbridge_stock_age_seconds",
                "Seconds since this process's copy of the cluster's objects was last current.",
                follower.age,
            )
        if self._settings.reviews or self._settings.is_authority:
            gauge("drawbridge_certificate_days", "Days until the serving certificate expires.", self.certificate.days)
        gauge("drawbridge_longest_review_delay_seconds", "Longest time for which one review has blocked all others, since the webhook process started.", lambda: self.app.longest_hold)  # fmt: skip
        gauge(
            "drawbridge_leader",
            "1 on the replica whose controllers run, 0 on the others.",
            lambda: self.election.leading,
        )
        gauge(
            "drawbridge_configuration_good",
            "0 while the newest configuration is invalid and an older one is in use, else 1.",
            lambda: not self._source.problem,
        )
