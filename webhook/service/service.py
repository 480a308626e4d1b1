"""One process of drawbridge, put together: webhook, controllers and authority, each of which may be left out, until told to stop.

In a cluster the three run apart: the webhook needs no right to write anything, the controllers none to read the authority's key,
and the authority none to look at pods. On a laptop (`drawbridge standalone`) they run together over the embedded store.
"""

from __future__ import annotations

import asyncio
import secrets
from functools import partial
from typing import TYPE_CHECKING

from certs.change_watch import ChangeWatch
from certs.material import SIGNING_KEY_BYTES, Names
from certs.store import SecretStore, allocators_name, authority_name, signature_name
from runtime.authentication import Callers
from runtime.controllers import Election, Recorder
from runtime.informers import Quarantine
from runtime.process import run_until
from webhook import names, registration
from webhook.service.app import App
from webhook.service.certificate import Certificate, FileCertificate, SharedSecrets, SigningKeySource
from webhook.service.deciding.decider import ReviewDecider
from webhook.service.follower import Follower
from webhook.service.metrics import WebhookMetrics
from webhook.service.missed_pods import CONTROLLER, MissedPods
from webhook.service.template_controller import Templates
from webhook.state import StateBuilder

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.protocol import Cluster
    from runtime.http import Address
    from runtime.process import Work
    from webhook.service.certificate import Origin
    from webhook.service.configuration_file import Source
    from webhook.service.log import Decisions
    from webhook.service.settings import Settings
    from webhook.state import Configuration

# The webhook configurations whose bundle the authority keeps: the webhook's, and that of quotas, where there is one.
CONFIGURATIONS = (registration.NAME, names.QUOTA)
# With no grace at all there is still a pause between sweeps.
LEAST_SWEEP_SECONDS = 1.0

WORKERS = {
    "forked": "Worker processes made for reviews that may take long.",
    "decided": "Reviews that a worker has decided.",
    "killed": "Worker processes that were killed after a timeout, or that exited.",
    "crowded": "Reviews that were not decided because too many waited for a worker.",
}


class Service:
    """What one process does: the webhook, the controllers and the authority, as far as its settings ask for them."""

    def __init__(
        self, cluster: Cluster, source: Source, settings: Settings, decisions: Decisions | None = None
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
        self.app = App(
            ReviewDecider(self.builder, self.follower, self.certificate.unready, source.notes),
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
        """Serve until told to stop. `listening` learns the ports as soon as reviews are answered with full knowledge."""
        of = self._settings
        works: list[Work] = [self.certificate.run]
        if of.reads_cluster:
            works += [self.follower.run, partial(self._source.follow, self._configure)]
        if of.controllers:
            works.append(self._lead)
        works.append(partial(self._listen, listening))
        drain = partial(self.app.drain, notice=of.notice, grace=of.grace, linger=of.linger)
        try:
            await run_until(stop, *works, metrics=self.metrics, at=of.metrics, drain=drain)
        finally:
            self.app.close()

    def _configure(self, new: Configuration) -> None:
        """Decide by another configuration, and show by which."""
        self.builder.configure(new)
        self.metrics.show_configuration(self._source.digest)

    async def _listen(self, listening: Callable[[Address, Address | None], None]) -> None:
        """Listen; say so only when everything was read, as readiness does."""
        listen = self._settings.listen
        if self._settings.reviews:
            context = self.certificate.context
            port = await self.app.start(listen.host, listen.port, context)
            listen = listen._replace(port=port)
        if self._settings.reads_cluster:
            await self.follower.wait_for_sync()
        await self.certificate.first()
        listening(listen, self.metrics.address)

    async def _lead(self) -> None:
        await self.follower.wait_for_sync()
        await self.certificate.first()  # with it come the keys that templates are signed with
        settings = self._settings

        # A grace that is shorter than the usual interval is kept too.
        sweep_every = min(settings.sweep_every, max(settings.sweep_after, LEAST_SWEEP_SECONDS))
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
        if settings.files and not settings.is_authority:
            return FileCertificate(*settings.files, SigningKeySource(store))
        if not settings.reviews and not settings.is_authority:
            return SigningKeySource(store)
        shared = SharedSecrets(store, keep=settings.is_authority)
        return FileCertificate(*settings.files, shared) if settings.files else shared

    def _changes(self) -> ChangeWatch:
        """The authority looks at everything it keeps; a process that serves or verifies, at what it does that with."""
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
        """Show what keeps this process from its work, what is only worth knowing, and gauges."""
        follower, gauge = self.follower, self.metrics.gauge
        self.metrics.checks = {"cluster": follower.what_is_unread} if self._settings.reads_cluster else {}
        self.metrics.checks["certificate"] = self.certificate.unready
        self.metrics.notes = {
            "stock": follower.stale,
            "namespaces": follower.unsure,
            "pods": follower.uncounted,
            "evidence": follower.unread_evidence,
            "server": follower.doubts,
            "objects read": follower.quarantine.note,
            "objects worked on": self.quarantine.note,
        }
        self.metrics.more_notes = self._source.notes
        self.metrics.show_configuration(self._source.digest)
        gauge(
            "drawbridge_quarantined_objects",
            "Stored objects that could not be read and are set aside until they change.",
            lambda: len(follower.quarantine.objects) + len(self.quarantine.objects),
        )
        # A process says nothing about work that it does not do: a certificate that it does not have is not one that ends.
        if self._settings.reads_cluster:
            gauge(
                "drawbridge_stock_age_seconds",
                "Seconds since the copy of the cluster was last current.",
                follower.age,
            )
        if self._settings.reviews or self._settings.is_authority:
            gauge("drawbridge_certificate_days", "Days until the serving certificate expires.", self.certificate.days)
        gauge("drawbridge_longest_review_delay_seconds", "The longest time for which one review has delayed all others.", lambda: self.app.longest_hold)  # fmt: skip
        for counter, text in WORKERS.items():
            gauge(f"drawbridge_workers_{counter}", text, lambda counter=counter: self.app.workers[counter])  # type: ignore[misc]
        gauge("drawbridge_leader", "1 on the replica that keeps the templates.", lambda: self.election.leading)
        gauge(
            "drawbridge_configuration_good",
            "0 while the newest configuration is refused and an older one is in force.",
            lambda: not self._source.problem,
        )
