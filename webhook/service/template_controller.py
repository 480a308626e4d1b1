"""The templates controller: makes the ResourceClaimTemplates that admitted pods name, and sweeps those that no pod needs.

An ordinary controller, never part of a review: it follows pods, workloads and templates, and does what `webhook.claims.template_lifecycle`
says. Nothing is remembered between starts but the clock of the sweep, so a kill costs a grace period and nothing else.
Of pods it follows those that the webhook has labelled because their template was not there. Others that wait are found by looking
(`webhook.service.pod_survey`): where a template has gone, and once more when every webhook must have heard of it; everywhere now and then,
because a label may be taken off on the way.
The templates of workloads are made before their first pod asks, which saves that pod the wait.

Any of the objects may be hostile, and all of them are looked at: what fails on one is named once and leaves the others alone.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from functools import partial
from itertools import islice
from operator import is_
from typing import TYPE_CHECKING, Any

import msgspec

from cluster import resources
from cluster.errors import AlreadyExists, ApiError, NotFound
from cluster.outlines import without_environment
from cluster.resources import version_of
from dra import step_limits
from dra.budget import Budget
from dra.objects import ObjectMeta, ResourceClaimTemplateSpec
from dra.raw import mapping
from runtime.controllers import WorkQueue
from runtime.informers import Informer, Quarantine
from webhook import names
from webhook.admission import Candidate, decide_pod
from webhook.claims import Due, template, template_lifecycle
from webhook.service.pod_survey import EVERYWHERE, LIVING, PodSurvey
from webhook.state import Mode, mode_of
from webhook.state import workload as workload_of
from webhook.translate import controller_kind, name_of, origin_of, paths, resolve_pointer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cluster.objects import StoredWorkload
    from cluster.protocol import Cluster
    from cluster.resources import Resource
    from dra.finding import Finding
    from dra.objects import Pod, ResourceClaimTemplate
    from dra.wire import Json
    from runtime.controllers import Recorder
    from runtime.informers import Batch
    from webhook.claims import TemplateKey as Key
    from webhook.service.metrics import WebhookMetrics
    from webhook.state import State

logger = logging.getLogger("drawbridge.templates")
WORKERS = 4
# How soon a pod is looked at again whose namespace did not allow what it proves, after something there has changed.
AGAIN_SECONDS = 1.0
# How often we look everywhere for pods that wait and are not labelled, and how long that may take.
LOOK_EVERY = 300.0
LOOK_SECONDS = 600.0
# How long our copy may take to show what we made.
SHOWN_SECONDS = 5.0
# A webhook takes a template for there that it saw a minute ago (`Pace.fresh`), and a review takes seconds. So long after one
# has gone, or we have begun, no pod comes any more that counts on it without saying so.
SECOND_LOOK_SECONDS = 90.0
# What a pod is told whose template cannot be made, of how many pods at a time, and after how long again: events are kept for an hour.
FAILED = "FailedTemplateCreation"
MOST_EVENTS = 8
REPEAT = 900.0


class Templates:
    """One controller; run it on the leader only."""

    def __init__(
        self,
        cluster: Cluster,
        state: Callable[[], State],
        recorder: Recorder,
        metrics: WebhookMetrics,
        *,
        grace: float = 3600.0,
        sweep_every: float = 30.0,
        again_every: float = AGAIN_SECONDS,
        second_look_after: float = SECOND_LOOK_SECONDS,
        quarantine: Quarantine | None = None,
    ) -> None:
        self._cluster = cluster
        self._state = state
        self._recorder = recorder
        self._metrics = metrics
        self._grace = grace
        self._sweep_every = sweep_every
        self._again_every = again_every
        self._users = template_lifecycle.TemplateUsers()
        self.quarantine = Quarantine() if quarantine is None else quarantine
        self._queue: WorkQueue[Key] = WorkQueue("templates", quarantine=self.quarantine)
        self._unused: dict[Key, float] = {}
        # When we made what our copy does not show yet.
        self._made: dict[Key, float] = {}
        self._reported: dict[str, float] = {}  # when a pod was told that its template cannot be made, by its uid
        self._translated_with: tuple[object, object] = (None, None)
        # Pods that prove a template which the webhook would not give them now, and why.
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
        self._second_look_after = second_look_after
        self._survey = PodSurvey(cluster)
        # Namespaces to look at, and those of them to look at once more.
        self._lookout: WorkQueue[str] = WorkQueue("pods that wait", quarantine=self.quarantine)
        self._once_more: set[str] = set()
        # Pods that a look has found waiting, and that are not followed.
        self._unfollowed: dict[Key, Pod] = {}
        self._templates = Informer(
            cluster, resources.RESOURCE_CLAIM_TEMPLATES, quarantine=self.quarantine, trim=_identity_only
        )
        kinds = [resources.as_workload(kind) for kind in resources.WORKLOADS]
        # Workloads whose pods would be turned back for what an administrator can fix.
        self.refused: dict[tuple[str, Key], Finding] = {}
        self._workloads = [Informer(cluster, kind, quarantine=self.quarantine, trim=_without_spec) for kind in kinds]

    async def run(self) -> None:
        """Follow, make and sweep until cancelled."""
        self._pods.listen(self._on_pods)
        self._templates.listen(self._on_templates)
        for informer in self._workloads:
            informer.listen(partial(self._on_workloads, informer.resource))
        async with asyncio.TaskGroup() as group:
            followed: list[Informer[Any]] = [self._pods, self._templates, *self._workloads]
            for informer in followed:
                group.create_task(informer.run())
            await self._templates.wait_for_sync(float("inf"))  # before that, everything would look missing
            for _ in range(WORKERS):
                group.create_task(self._queue.run(self._reconcile))
            await self._pods.wait_for_sync(float("inf"))  # before that, everything would look unused
            for informer in self._workloads:
                await informer.wait_for_sync(float("inf"))
            self._schedule_look(EVERYWHERE, 0.0)
            group.create_task(self._lookout.run(self._find_waiting, deadline=LOOK_SECONDS))
            group.create_task(self._retry_withheld())
            while True:
                await asyncio.sleep(self._sweep_every)
                await self._translate_again()
                await self._sweep()

    async def _retry_withheld(self) -> None:
        """A mode may have changed, or a quota, or we were only the last to learn of it."""
        while True:
            await asyncio.sleep(self._again_every)
            state = self._state()
            using = (
                state.configuration,
                state.namespaces,
                state.quotas,
                state.limit_ranges,
                state.unsure,
                state.keys,
            )
            before = self._withheld_with
            if len(using) == len(before) and all(map(is_, using, before)):
                continue
            self._withheld_with = using
            for key in tuple(self._withheld):
                pod = self._pods.objects.get(key) or self._unfollowed.get(key)
                if pod is None:
                    continue
                kind = self._pods.resource.id
                version = pod.metadata.resource_version
                with self.quarantine.guard(kind, *key, version=version):
                    wanted = self._templates_of_pod(pod, key)
                    self._request(("Pod", key), *wanted)

    def _on_pods(self, batch: Batch[Pod]) -> None:
        for delta in batch.deltas:
            source = "Pod", delta.key
            if delta.new is None:
                self._withheld.pop(delta.key, None)
                self._request(source, {})
            else:
                wanted = self._templates_of_pod(delta.new, delta.key)
                self._request(source, *wanted)

    def _templates_of_pod(self, pod: Pod, key: Key) -> tuple[Mapping[Key, Json], frozenset[Key]]:
        """What a pod wants and may have, and what it uses."""
        state = self._state()
        try:
            proven = template_lifecycle.read_proven(pod, state.keys)
            problem = template_lifecycle.objection(pod, proven.values(), state) if proven else ""
        except template.TemplatesError as error:
            proven = {}
            problem = str(error)
        if not problem:
            self._withheld.pop(key, None)
            return proven, template_lifecycle.templates_of(pod)
        if self._withheld.get(key) != problem:
            self._withheld[key] = problem
            self._metrics.template("withheld")
            logger.warning("no template is made for a pod", extra={"pod": "/".join(key), "problem": problem})
        return {}, template_lifecycle.templates_of(pod)

    def _schedule_look(self, namespace: str, seconds: float) -> None:
        """Look for pods that wait in a namespace, and once more when every webhook has heard what we have."""
        self._once_more.add(namespace)
        self._lookout.add_after(namespace, seconds)

    async def _find_waiting(self, namespace: str) -> None:
        """Find the pods of a namespace that need a template which is not there, and that we do not follow."""
        good: dict[Key, bool] = {}

        def waits(pod: Pod) -> bool:
            key = pod.metadata.namespace, pod.metadata.name
            if key in self._pods.objects:
                return False
            used = template_lifecycle.templates_of(pod)
            for key in used - good.keys():
                stored = self._templates.objects.get(key)
                good[key] = stored is not None and template_lifecycle.matches_name(stored)
            return not all(good[key] for key in used)

        found = await self._survey.waiting(namespace, waits)
        for key in tuple(self._unfollowed):
            if namespace in (EVERYWHERE, key[0]) and key not in found:
                # It was found waiting, and does not wait any more.
                del self._unfollowed[key]
                if key not in self._pods.objects:
                    self._withheld.pop(key, None)
                    self._request(("Pod", key), {})
        for key, pod in found.items():
            self._unfollowed[key] = pod
            kind = self._pods.resource.id
            version = pod.metadata.resource_version
            with self.quarantine.guard(kind, *key, version=version):
                wanted = self._templates_of_pod(pod, key)
                self._request(("Pod", key), *wanted)
        if namespace in self._once_more:
            self._once_more.discard(namespace)
            self._lookout.add_after(namespace, self._second_look_after)
        elif namespace == EVERYWHERE:
            self._lookout.add_after(namespace, LOOK_EVERY)

    def _on_templates(self, batch: Batch[ResourceClaimTemplate]) -> None:
        for delta in batch.deltas:
            self._made.pop(delta.key, None)
            if delta.new is None and delta.key[1].startswith(names.PREFIX):
                self._schedule_look(delta.key[0], self._again_every)
            if self._users.spec(delta.key) is not None:
                self._queue.add(delta.key)

    def _on_workloads(self, kind: Resource[StoredWorkload], batch: Batch[StoredWorkload]) -> None:
        for delta in batch.deltas:
            source = kind.kind, delta.key
            if delta.new is None:
                self.refused.pop(source, None)
            self._request(source, {} if delta.new is None else self._templates_of_workload(kind, delta.new))

    def _templates_of_workload(self, resource: Resource[StoredWorkload], workload: StoredWorkload) -> dict[Key, Json]:
        """What the pods of a workload will name, if they will be translated and admitted at all."""
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
            candidate = Candidate(mapping(resolve_pointer(obj, path)), namespace, owner, name_of(obj), origin=origin)
            verdict = decide_pod(candidate, state, Budget(step_limits.TEMPLATES_AHEAD))
            if verdict.refusals:  # its pods would be turned back, and so would the templates
                for_administrator = [refusal for refusal in verdict.refusals if "administrator" in refusal.remedy]
                if for_administrator:
                    self.refused[source] = for_administrator[0]
                continue
            for name, spec in verdict.templates.items():
                key = namespace, name
                wanted[key] = spec
        return wanted

    async def _translate_again(self) -> None:
        state = self._state()
        using = (state.configuration, state.fleet)
        if using == self._translated_with:
            return
        self._translated_with = using
        for informer in self._workloads:
            for key in tuple(informer.objects):
                await asyncio.sleep(0)  # there may be ten thousand, and the lease has to be renewed meanwhile
                obj = informer.objects.get(key)
                if obj is None:
                    continue
                with self.quarantine.guard(informer.resource.id, *key, version=version_of(obj)):
                    self._request((informer.resource.kind, key), self._templates_of_workload(informer.resource, obj))

    def _request(self, source: object, wanted: Mapping[Key, Json], uses: frozenset[Key] = frozenset()) -> None:
        for key in self._users.put(source, wanted, uses):
            if self._users.spec(key) is not None:
                self._queue.add(key)

    async def _reconcile(self, key: Key) -> None:
        """Bring one template to what is wanted of it."""
        wanted = self._users.spec(key)
        if wanted is None:
            return
        namespace, name = key
        stored = self._templates.objects.get(key)
        match template_lifecycle.due(wanted, stored):
            case Due.NOTHING:
                return
            case Due.CREATE:
                made = self._made.get(key, float("-inf"))
                if asyncio.get_running_loop().time() - made < SHOWN_SECONDS:
                    self._queue.add_after(key, SHOWN_SECONDS)  # it may be gone again before our copy has shown it
                else:
                    await self._create(namespace, name, wanted)
            case Due.REPLACE if stored is not None:
                logger.warning(
                    "a template under our name held something else", extra={"template": f"{namespace}/{name}"}
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
        except AlreadyExists:  # another replica was first, and our copy does not show it yet
            with suppress(NotFound):
                stored = await self._cluster.get(resources.RESOURCE_CLAIM_TEMPLATES, name, namespace)
                due = template_lifecycle.due(spec, stored)
                if due is Due.REPLACE:
                    await self._delete(stored, "replaced")
                    self._queue.add((namespace, name))
                elif due is Due.TAKEN:
                    self._log_taken(stored)
            return
        except NotFound:
            return  # the namespace is gone, and the pod with it
        except ApiError as error:
            if error.has_cause("NamespaceTerminating"):
                return
            await self._report_failure((namespace, name), str(error))
            raise
        self._made[namespace, name] = asyncio.get_running_loop().time()
        self._queue.add_after((namespace, name), SHOWN_SECONDS)
        self._metrics.template("created")
        logger.info("template created", extra={"template": f"{namespace}/{name}"})

    async def _report_failure(self, key: Key, why: str) -> None:
        """Tell some of the pods that wait for a template why it cannot be made, in an event."""
        now = asyncio.get_running_loop().time()
        self._reported = {uid: at for uid, at in self._reported.items() if now - at < REPEAT}
        unreported = [pod for pod in self._pods.objects.values() if pod.metadata.uid not in self._reported]
        waiting = (pod for pod in unreported if key in template_lifecycle.templates_of(pod))
        for pod in islice(waiting, MOST_EVENTS):
            self._reported[pod.metadata.uid] = now
            await self._recorder.record(pod, FAILED, f"its template cannot be made: {why}", warning=True)

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
        stored = await self._known_templates()
        in_use = self._users.in_use() | self._survey.in_use()
        self._unused, over = template_lifecycle.sweep(self._unused, stored, in_use, now=now, grace=self._grace)
        for one in over:
            key = one.metadata.namespace, one.metadata.name
            where = {"template": "/".join(key)}
            try:
                if await self._is_used(key, now):
                    continue
                await self._delete(one, "swept")
                logger.info("template swept", extra=where)
            except ApiError as error:
                logger.warning("cannot delete an unused template", extra={**where, "problem": str(error)})

    async def _known_templates(self) -> list[ResourceClaimTemplate]:
        """Give out the templates of which it is known whether a pod uses them; look where that was not asked for a grace period."""
        followed = self._users.in_use()
        judged: list[ResourceClaimTemplate] = []
        failed: set[str] = set()
        for key, one in tuple(self._templates.objects.items()):
            namespace = key[0]
            if key in followed or not template_lifecycle.is_ours(one) or namespace in failed:
                continue
            if self._survey.age(namespace) > self._grace:
                try:
                    await self._survey.list_templates(namespace)
                except ApiError as error:
                    failed.add(namespace)
                    note = {"namespace": namespace, "problem": str(error)}
                    logger.warning("cannot read the pods of a namespace", extra=note)
                    continue
            judged.append(one)
        self._survey.forget(frozenset([one.metadata.namespace for one in judged]))
        return judged

    async def _is_used(self, key: Key, begun: float) -> bool:
        """Whether a pod uses a template, as of now: asked in this sweep."""
        namespace = key[0]
        since = asyncio.get_running_loop().time() - begun
        if self._survey.age(namespace) > since:
            await self._survey.list_templates(namespace)
        return key in self._survey.in_use() or key in self._users.in_use()


def _identity_only(stored: ResourceClaimTemplate) -> ResourceClaimTemplate:
    """Leave away all but the identity of a template whose name is not ours: it is not compared with anything here."""
    meta = stored.metadata
    if meta.name.startswith(names.PREFIX):
        return stored
    known = ObjectMeta(name=meta.name, namespace=meta.namespace, uid=meta.uid, resource_version=meta.resource_version)
    return msgspec.structs.replace(stored, metadata=known, spec=ResourceClaimTemplateSpec())


def _without_spec(workload: StoredWorkload) -> StoredWorkload:
    """Leave away the spec of what a controller makes, which is not looked at: of ten ReplicaSets nine are old ones."""
    return msgspec.structs.replace(workload, spec=None) if workload.is_owned else workload
