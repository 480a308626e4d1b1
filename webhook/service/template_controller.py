"""The template controller: creates the ResourceClaimTemplates that admitted pods name, and deletes those that no pod uses.

`webhook.claims.template_lifecycle` decides; this module watches, lists and writes. All state is in memory. The only effect of a restart is that
unused templates are kept for another grace period.

The controller learns in three ways which templates are needed:

    watch of labelled pods    the webhook labels a pod whose template did not exist when the pod was admitted
    survey of pending pods    lists pods without a node that name a missing template (`webhook.service.pod_survey`): in a namespace after a
                              template there was deleted, and again once every webhook replica has seen the deletion; in all namespaces
                              every SURVEY_EVERY seconds, because another program may have removed the label
    watch of workloads        the templates of a workload are created before its first pod, so that this pod need not wait

Any object may be hostile. An error while processing an object quarantines this object only, and all others are processed.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec

from cluster import resources
from cluster.controllers import WorkQueue
from cluster.errors import AlreadyExists, ApiError, NotFound
from cluster.informers import Informer, Quarantine
from cluster.outlines import without_environment
from dra import step_limits
from dra.budget import Budget
from dra.objects import ObjectMeta, ResourceClaimTemplateSpec
from dra.raw import mapping
from webhook import names
from webhook.admission import ReviewedPod, decide_pod
from webhook.claims import Due, template, template_lifecycle
from webhook.refusals import LACKING
from webhook.service.pod_survey import EVERYWHERE, LIVING, PodSurvey
from webhook.state import Mode, mode_of
from webhook.state import workload as workload_of
from webhook.translate import controller_kind, name_of, origin_of, paths, resolve_pointer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cluster.controllers import Recorder
    from cluster.informers import Batch
    from cluster.objects import StoredWorkload
    from cluster.protocol import Cluster
    from cluster.resources import Resource
    from dra.finding import Finding
    from dra.objects import Pod, ResourceClaimTemplate
    from dra.wire import Json
    from webhook.claims import TemplateKey as Key
    from webhook.service.metrics import WebhookMetrics
    from webhook.state import State

logger = logging.getLogger("drawbridge.templates")
WORKERS = 4
# Interval between two checks whether templates that were withheld can be created now; also the delay of a survey after a deletion.
RETRY_SECONDS = 1.0
# Interval between surveys of all namespaces, and the deadline of one survey.
SURVEY_EVERY = 300.0
SURVEY_SECONDS = 600.0
WAITING_BYTES = 32 << 20  # memory for the pods that a survey finds
# The informer shows a created template after this time at the latest.
CACHE_SECONDS = 5.0
# Delay of the second survey after a deletion. A webhook replica relies on a template that it saw up to a minute ago (`Pace.fresh`), and a
# review takes seconds; after this time every replica has seen the deletion.
SECOND_SURVEY_SECONDS = 90.0
# The reason of the event for a pod whose template cannot be created, the number of pods that get it at once, and the interval between two
# events for one pod. An API server keeps events for an hour.
FAILED = "FailedTemplateCreation"
MAX_EVENTS = 8
REPORT_EVERY = 900.0


class Templates:
    """The template controller. Run it on the leader only."""

    def __init__(
        self,
        cluster: Cluster,
        state: Callable[[], State],
        recorder: Recorder,
        metrics: WebhookMetrics,
        *,
        grace: float = 3600.0,
        sweep_every: float = 30.0,
        retry_every: float = RETRY_SECONDS,
        second_survey_after: float = SECOND_SURVEY_SECONDS,
        quarantine: Quarantine | None = None,
    ) -> None:
        self._cluster = cluster
        self._state = state
        self._recorder = recorder
        self._metrics = metrics
        self._grace = grace
        self._sweep_every = sweep_every
        self._retry_every = retry_every
        self._users = template_lifecycle.TemplateUsers()
        self.quarantine = Quarantine() if quarantine is None else quarantine
        self._queue: WorkQueue[Key] = WorkQueue("templates", quarantine=self.quarantine)
        self._unused: dict[Key, float] = {}
        # Templates that were created and that the informer does not show yet, with the time of creation.
        self._created: dict[Key, float] = {}
        self._reported: dict[str, float] = {}  # time of the last failure event, by the uid of the pod
        # The configuration and inventory with which workloads were last translated.
        self._translated_with: tuple[object, object] = (None, None)
        # Pods whose templates are withheld, that is, not created now, with the reason: an invalid signature, or a rule of the namespace. And
        # the parts of the state on which these reasons depended at the last check.
        self._withheld: dict[Key, str] = {}
        self._withheld_with: tuple[object, ...] = ()
        waiting = f"{names.WAITS_LABEL}=true"
        self._pods = Informer(
            cluster,
            resources.PODS,
            fields=LIVING,
            labels=waiting,
            quarantine=self.quarantine,
            trim=without_environment,
        )
        self._second_survey_after = second_survey_after
        self._survey = PodSurvey(cluster)
        # Namespaces to survey, and those of them to survey a second time.
        self._surveys: WorkQueue[str] = WorkQueue("pods that wait", quarantine=self.quarantine)
        self._survey_again: set[str] = set()
        # Pods that a survey found and that the watch does not show, because they lack the label.
        self._unlabelled: dict[Key, Pod] = {}
        self._templates = Informer(
            cluster, resources.RESOURCE_CLAIM_TEMPLATES, quarantine=self.quarantine, trim=_identity_only
        )
        kinds = [resources.as_workload(kind) for kind in resources.WORKLOADS]
        # Workloads whose pods would be refused for a reason that an administrator can remove.
        self.refused: dict[tuple[str, Key], Finding] = {}
        self._workloads = [Informer(cluster, kind, quarantine=self.quarantine, trim=_without_spec) for kind in kinds]

    async def run(self) -> None:
        self._pods.listen(self._on_pods)
        self._templates.listen(self._on_templates)
        for informer in self._workloads:
            informer.listen(partial(self._on_workloads, informer.resource))
        async with asyncio.TaskGroup() as group:
            followed: list[Informer[Any]] = [self._pods, self._templates, *self._workloads]
            for informer in followed:
                group.create_task(informer.run())
            await self._templates.wait_for_sync()  # before that, every template would look missing
            for _ in range(WORKERS):
                group.create_task(self._queue.run(self._reconcile))
            await self._pods.wait_for_sync()  # before that, every template would look unused
            for informer in self._workloads:
                await informer.wait_for_sync()
            self._schedule_survey(EVERYWHERE, 0.0)
            group.create_task(self._surveys.run(self._find_waiting, deadline=SURVEY_SECONDS))
            group.create_task(self._retry_withheld())
            while True:
                await asyncio.sleep(self._sweep_every)
                await self._translate_workloads()
                await self._sweep()

    async def _retry_withheld(self) -> None:
        """Check withheld pods again after the rules of a namespace or the signing keys have changed."""
        while True:
            await asyncio.sleep(self._retry_every)
            state = self._state()
            inputs = (
                state.configuration,
                state.features,
                state.fleet.extended,
                state.namespaces,
                state.quotas,
                state.limit_ranges,
                state.unsure,
                state.keys,
            )
            if inputs == self._withheld_with:
                continue
            self._withheld_with = inputs
            for key in tuple(self._withheld):
                pod = self._pods.objects.get(key) or self._unlabelled.get(key)
                if pod is not None:
                    self._request_guarded(pod, key)

    def _on_pods(self, batch: Batch[Pod]) -> None:
        for delta in batch.deltas:
            if delta.new is None:
                self._forget_pod(delta.key)
            else:
                self._request_for_pod(delta.new, delta.key)

    def _request_guarded(self, pod: Pod, key: Key) -> None:
        """Request the templates of a pod, and quarantine the pod on an error. (If the informer calls a listener, it does that itself.)"""
        with self.quarantine.guard(self._pods.resource.id, *key):
            self._request_for_pod(pod, key)

    def _forget_pod(self, key: Key) -> None:
        self._withheld.pop(key, None)
        self._request(("Pod", key), {})

    def _request_for_pod(self, pod: Pod, key: Key) -> None:
        """Request the templates that may be created for a pod, and note all templates that it uses."""
        state = self._state()
        try:
            proven = template_lifecycle.read_proven(pod, state.keys)
            problem = template_lifecycle.objection(pod, proven.values(), state) if proven else ""
        except template.TemplatesError as error:
            proven = {}
            problem = str(error)
        if not problem:
            self._withheld.pop(key, None)
        elif self._withheld.get(key) != problem:
            self._withheld[key] = problem
            self._metrics.template("withheld")
            logger.warning("no template is created for a pod", extra={"pod": "/".join(key), "problem": problem})
        self._request(("Pod", key), {} if problem else proven, template_lifecycle.templates_of(pod))

    def _schedule_survey(self, namespace: str, seconds: float) -> None:
        """Survey a namespace after some seconds, and again when every webhook replica has seen the templates that exist now."""
        self._survey_again.add(namespace)
        self._surveys.add_after(namespace, seconds)

    async def _find_waiting(self, namespace: str) -> None:
        """Survey a namespace: request the missing templates of its pending pods that have no label."""
        matching: dict[Key, bool] = {}

        def is_waiting(pod: Pod) -> bool:
            meta = pod.metadata
            if names.TEMPLATES not in meta.annotations or (meta.namespace, meta.name) in self._pods.objects:
                return False
            used = template_lifecycle.templates_of(pod)
            for key in used - matching.keys():
                stored = self._templates.objects.get(key)
                matching[key] = stored is not None and template_lifecycle.matches_name(stored)
            return not all(matching[key] for key in used)

        waiting = await self._survey.pending(namespace, is_waiting, WAITING_BYTES)
        for key in tuple(self._unlabelled):
            if namespace in (EVERYWHERE, key[0]) and key not in waiting:  # an earlier survey found it
                del self._unlabelled[key]
                if key not in self._pods.objects:
                    self._forget_pod(key)
        for key, pod in waiting.items():
            self._unlabelled[key] = pod
            self._request_guarded(pod, key)
        if namespace in self._survey_again:
            self._survey_again.discard(namespace)
            self._surveys.add_after(namespace, self._second_survey_after)
        elif namespace == EVERYWHERE:
            self._surveys.add_after(namespace, SURVEY_EVERY)

    def _on_templates(self, batch: Batch[ResourceClaimTemplate]) -> None:
        for delta in batch.deltas:
            self._created.pop(delta.key, None)
            if delta.new is None and delta.key[1].startswith(names.PREFIX):
                self._schedule_survey(delta.key[0], self._retry_every)
            if self._users.spec(delta.key) is not None:
                self._queue.add(delta.key)

    def _on_workloads(self, kind: Resource[StoredWorkload], batch: Batch[StoredWorkload]) -> None:
        for delta in batch.deltas:
            source = kind.kind, delta.key
            if delta.new is None:
                self.refused.pop(source, None)
                self._request(source, {})
            else:
                self._request(source, self._templates_of_workload(kind, delta.new))

    def _templates_of_workload(self, resource: Resource[StoredWorkload], workload: StoredWorkload) -> dict[Key, Json]:
        """Return the templates that the pods of a workload will name; none if they will not be translated or will be refused."""
        metadata = workload.metadata
        namespace = metadata.namespace
        source = resource.kind, (namespace, metadata.name)
        self.refused.pop(source, None)
        if workload.is_owned:
            return {}
        state = self._state()
        controller = {"controller": True, "kind": controller_kind(resource.kind), "name": metadata.name}
        owner = workload_of(namespace, {"ownerReferences": [controller]})
        if mode_of(state, owner) is not Mode.ENFORCE:
            return {}
        wanted: dict[Key, Json] = {}
        obj = resource.plain(workload)
        origin = origin_of(obj, state.configuration)
        for path in paths(obj):
            candidate = ReviewedPod(mapping(resolve_pointer(obj, path)), namespace, owner, name_of(obj), origin=origin)
            verdict = decide_pod(candidate, state, Budget(step_limits.TEMPLATES_AHEAD))
            if verdict.refusals:
                if lacking := [refusal for refusal in verdict.refusals if refusal.code in LACKING]:
                    self.refused[source] = lacking[0]
                continue
            wanted |= {(namespace, name): spec for name, spec in verdict.templates.items()}
        return wanted

    async def _translate_workloads(self) -> None:
        """Translate all workloads again if the configuration or the inventory has changed."""
        state = self._state()
        inputs = (state.configuration, state.fleet)
        if inputs == self._translated_with:
            return
        self._translated_with = inputs
        for informer in self._workloads:
            for key in tuple(informer.objects):
                await asyncio.sleep(0)  # there may be ten thousand workloads, and the Lease must be renewed meanwhile
                obj = informer.objects.get(key)
                if obj is None:
                    continue
                with self.quarantine.guard(informer.resource.id, *key):
                    self._request((informer.resource.kind, key), self._templates_of_workload(informer.resource, obj))

    def _request(self, source: object, wanted: Mapping[Key, Json], uses: frozenset[Key] = frozenset()) -> None:
        for key in self._users.put(source, wanted, uses):
            if self._users.spec(key) is not None:
                self._queue.add(key)

    async def _reconcile(self, key: Key) -> None:
        """Create, replace or keep one template, as `template_lifecycle.due` decides."""
        wanted = self._users.spec(key)
        if wanted is None:
            return
        namespace, name = key
        stored = self._templates.objects.get(key)
        match template_lifecycle.due(wanted, stored):
            case Due.NOTHING:
                return
            case Due.CREATE:
                created_at = self._created.get(key, float("-inf"))
                if asyncio.get_running_loop().time() - created_at < CACHE_SECONDS:
                    # Look again then: the template may have been deleted before the informer showed it.
                    self._queue.add_after(key, CACHE_SECONDS)
                else:
                    await self._create(namespace, name, wanted)
            case Due.REPLACE if stored is not None:
                logger.warning(
                    "a template of drawbridge had other content, and is replaced",
                    extra={"template": f"{namespace}/{name}"},
                )
                await self._delete(stored, "replaced")
                await self._create(namespace, name, wanted)
            case Due.TAKEN if stored is not None:
                self._log_taken(stored)

    def _log_taken(self, stored: ResourceClaimTemplate) -> None:
        meta = stored.metadata
        owner = self._state().template_owners.get((meta.namespace, meta.name), "")
        self._metrics.template("taken")
        logger.warning(
            "a template of another owner has a reserved name",
            extra={"template": meta.key, "owner": owner, "finalizers": meta.finalizers},
        )

    async def _create(self, namespace: str, name: str, spec: Json) -> None:
        new_template = template.object_of(name, spec, namespace)
        try:
            await self._cluster.create(resources.RESOURCE_CLAIM_TEMPLATES, new_template, namespace)
        except AlreadyExists:
            return  # a former leader or another program created it; the key is queued when the informer shows it
        except NotFound:
            return  # the namespace is deleted, and the pod with it
        except ApiError as error:
            if error.has_cause("NamespaceTerminating"):
                return
            await self._report_failure((namespace, name), str(error))
            raise
        self._created[namespace, name] = asyncio.get_running_loop().time()
        self._queue.add_after((namespace, name), CACHE_SECONDS)
        self._metrics.template("created")
        logger.info("template created", extra={"template": f"{namespace}/{name}"})

    async def _report_failure(self, key: Key, why: str) -> None:
        """Write an event with the reason for some of the pods that wait for a template."""
        now = asyncio.get_running_loop().time()
        self._reported = {uid: at for uid, at in self._reported.items() if now - at < REPORT_EVERY}
        unreported = [pod for pod in self._pods.objects.values() if pod.metadata.uid not in self._reported]
        waiting = (pod for pod in unreported if key in template_lifecycle.templates_of(pod))
        for pod in islice(waiting, MAX_EVENTS):
            self._reported[pod.metadata.uid] = now
            await self._recorder.record(pod, FAILED, f"a template for this pod cannot be created: {why}", warning=True)

    async def _delete(self, stored: ResourceClaimTemplate, why: str) -> None:
        meta = stored.metadata
        with suppress(NotFound):
            await self._cluster.delete(
                resources.RESOURCE_CLAIM_TEMPLATES,
                meta.name,
                meta.namespace,
                uid=meta.uid,
                resource_version=meta.resource_version,
            )
            self._metrics.template(why)

    async def _sweep(self) -> None:
        now = asyncio.get_running_loop().time()
        stored = await self._unfollowed_templates()
        in_use = self._users.in_use() | self._survey.in_use()
        self._unused, expired = template_lifecycle.sweep(self._unused, stored, in_use, now=now, grace=self._grace)
        for stored_template in expired:
            key = stored_template.metadata.namespace, stored_template.metadata.name
            where = {"template": "/".join(key)}
            try:
                if await self._is_used(key, now):
                    continue
                await self._delete(stored_template, "swept")
                logger.info("unused template deleted", extra=where)
            except ApiError as error:
                logger.warning("cannot delete an unused template", extra={**where, "problem": str(error)})

    async def _unfollowed_templates(self) -> list[ResourceClaimTemplate]:
        """Return our templates that no followed pod or workload uses.

        The pods of their namespaces are listed first, unless they were listed within the grace period; a namespace whose pods cannot be listed
        is left out.
        """
        followed = self._users.in_use()
        unfollowed: list[ResourceClaimTemplate] = []
        failed: set[str] = set()
        for key, stored_template in tuple(self._templates.objects.items()):
            namespace = key[0]
            if key in followed or not template_lifecycle.is_ours(stored_template) or namespace in failed:
                continue
            if self._survey.age(namespace) > self._grace:
                try:
                    await self._survey.list_used_templates(namespace)
                except ApiError as error:
                    failed.add(namespace)
                    note = {"namespace": namespace, "problem": str(error)}
                    logger.warning("cannot read the pods of a namespace", extra=note)
                    continue
            unfollowed.append(stored_template)
        self._survey.forget(frozenset([stored_template.metadata.namespace for stored_template in unfollowed]))
        return unfollowed

    async def _is_used(self, key: Key, sweep_started: float) -> bool:
        """Return whether a pod uses a template, by a list of pods that is no older than this sweep."""
        namespace = key[0]
        since = asyncio.get_running_loop().time() - sweep_started
        if self._survey.age(namespace) > since:
            await self._survey.list_used_templates(namespace)
        return key in self._survey.in_use() or key in self._users.in_use()


def _identity_only(stored: ResourceClaimTemplate) -> ResourceClaimTemplate:
    """Drop all but the identity of a template whose name does not have our prefix: its content is never compared."""
    meta = stored.metadata
    if meta.name.startswith(names.PREFIX):
        return stored
    known = ObjectMeta(name=meta.name, namespace=meta.namespace, uid=meta.uid, resource_version=meta.resource_version)
    return msgspec.structs.replace(stored, metadata=known, spec=ResourceClaimTemplateSpec())


def _without_spec(workload: StoredWorkload) -> StoredWorkload:
    """Drop the spec of a workload that a controller created, because it is not translated. Most ReplicaSets are old ones of Deployments."""
    return msgspec.structs.replace(workload, spec=None) if workload.is_owned else workload
