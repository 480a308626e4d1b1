"""Findings about drawbridge itself: objects that differ from those that this version installs, certificates, and answers of replicas."""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as NotBase64
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import product
from typing import TYPE_CHECKING, Any

import msgspec
from cryptography.x509 import Certificate, load_pem_x509_certificates

from analysis.configuration import ConfigurationInForce
from analysis.container_states import failing_containers
from analysis.installation import LEASES
from analysis.refused_pods import number
from certs import authority
from certs.annotations import BUNDLE_KEEPER, OTHER_KEEPERS, RULES
from certs.material import AUTHORITY_NAME
from cluster.manifests import ManifestError, parse
from dra.codes import INSTALL_WEBHOOKS
from dra.finding import Finding, make_finding
from dra.raw import Object, inside, items, moment, text
from dra.texts import list_first
from webhook import names
from webhook.registration import Registration, configurations
from webhook.state import mistake_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from webhook.state import Configuration


WORKLOADS = ("Deployment", "DaemonSet")
SCHEDULER, PLUGIN = "drawbridge-scheduler", "Drawbridge"
WEBHOOKS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
# By kind, the fields that only drawbridge sets, so that they can be compared. Administrators may change objects of other kinds.
_JUDGED = {
    "ClusterRole": ("rules",),
    "Role": ("rules",),
    "ClusterRoleBinding": ("roleRef", "subjects"),
    "RoleBinding": ("roleRef", "subjects"),
    "ValidatingAdmissionPolicy": ("spec",),
    "ValidatingAdmissionPolicyBinding": ("spec",),
    "MutatingAdmissionPolicy": ("spec",),
    "MutatingAdmissionPolicyBinding": ("spec",),
    "CustomResourceDefinition": ("spec",),
    "Service": ("spec",),
}
# The values of a chart can leave out all objects of each of these kinds.
_OPTIONAL = frozenset(("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "NetworkPolicy"))
_WITHOUT = {
    "webhook": "pods are admitted as written, or are refused under failurePolicy Fail",
    "controller": "no templates are created, so translated pods wait",
    "authority": "no certificate is renewed, and no bundle is written",
    "allocator": "the bridge's scheduler places no pods with devices",
    "scheduler": "no pod of the bridge's scheduler is placed",
}
_SKEW = timedelta(minutes=1)
_TOKEN = timedelta(hours=1)  # the lifetime of a pod's token
_MAX = 6  # if more objects have the same fault, one finding names them together
_QUOTED = 160
WEBHOOKS_AGAIN = f"run `{INSTALL_WEBHOOKS}`, with the values and the configuration of the installation"
REAPPLY = (
    "apply the manifests of the installed version again, with the values that it was installed with (docs/install.md)"
)


class ReplicaAnswer(msgspec.Struct, frozen=True):
    """The answer of a replica's metrics port: the lines of /readyz, and the metrics that the findings need."""

    pod: str
    lines: tuple[str, ...] = ()
    certificates: dict[str, float] = {}  # days left of each certificate that it serves
    configuration: str = ""  # SHA-256 of the file in force


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """The objects of an installation that were read."""

    home: str
    homes: tuple[str, ...]  # namespaces with a webhook of ours
    installed: ConfigurationInForce
    digest: str = ""  # SHA-256 of the configuration in the ConfigMap; "" if the configuration is invalid
    objects: tuple[Object, ...] = ()
    expected: tuple[Object, ...] = ()
    unread: frozenset[str] = frozenset()  # kinds that could not be read
    answers: tuple[ReplicaAnswer, ...] = ()
    refusals: dict[str, str] = {}  # by workload: the message of a FailedCreate event about it

    @property
    def configuration(self) -> Configuration:
        """The installed configuration."""
        return self.installed.configuration

    def of_kinds(self, *kinds: str) -> list[Object]:
        """List the objects of some kinds."""
        return [obj for obj in self.objects if obj["kind"] in kinds]

    def find(self, kind: str, name: str, namespace: str = "") -> Object | None:
        """Find one object."""
        for obj in self.of_kinds(kind):
            if obj["metadata"]["name"] == name and namespace in ("", obj["metadata"].get("namespace")):
                return obj
        return None

    def name_of_pod(self, pod: str) -> str:
        """Name the pod of a replica, as findings do."""
        replica = self.find("Pod", pod)
        return name_of(replica) if replica else f"Pod/{self.home}/{pod}"


def name_of(obj: Object) -> str:
    """Name an object as findings do: Kind/namespace/name."""
    metadata = obj["metadata"]
    where = f"{metadata['namespace']}/" if metadata.get("namespace") else ""
    return f"{obj['kind']}/{where}{metadata['name']}"


def two_installations(parts: Parts, _: datetime) -> Iterator[Finding]:
    """Two installations in one cluster."""
    if len(parts.homes) > 1:
        others = [home for home in parts.homes if home != parts.home]
        yield make_finding(
            "O001",
            f"Namespace/{others[0]}",
            f"webhooks of drawbridge run in {', '.join(parts.homes)}, and share the cluster's roles, policies and webhook configurations",
            f"keep one installation; `drawbridge uninstall --namespace {others[0]}` removes that in {others[0]} (docs/install.md)",
        )


def about_configuration(parts: Parts, _: datetime) -> Iterator[Finding]:
    """The installed configuration, the configuration that replicas use, and that of the bridge's scheduler."""
    config_map_name = f"ConfigMap/{parts.home}/{names.NAME}"
    for mistake in parts.installed.mistakes[:1]:
        yield make_finding("O002", config_map_name, mistake.message)
        return
    # The profile of the bridge's scheduler must have the name that the configuration gives to pods.
    config_map, bridge = parts.find("ConfigMap", SCHEDULER, parts.home), parts.configuration.file.bridge
    if config_map is not None and bridge is not None:
        scheduler_file: Object = {}
        with suppress(ManifestError):
            scheduler_file = next(
                (document.object for document in parse(text(inside(config_map, "data").get("scheduler.yaml")))), {}
            )
        profiles = {text(item.get("schedulerName")): item for item in items(scheduler_file, "profiles")}
        enabled = items(inside(profiles.get(bridge.scheduler_name, {}), "plugins", "multiPoint"), "enabled")
        problem = ""
        if bridge.scheduler_name not in profiles:
            problem = f"no profile in it is called {bridge.scheduler_name}, the scheduler that the configuration sends pods to"
        elif all(plugin.get("name") != PLUGIN for plugin in enabled):
            problem = f"profile {bridge.scheduler_name} does not enable the plugin {PLUGIN}, so the scheduler does not call the allocator"
        if problem:
            yield make_finding("O002", name_of(config_map), problem, f"{REAPPLY}; then restart the scheduler")
    others = [answer.pod for answer in parts.answers if answer.configuration and parts.digest != answer.configuration]
    if others and parts.digest:
        yield make_finding(
            "O002",
            config_map_name,
            f"{list_first(others, 3)} use another configuration than that in the ConfigMap",
            "wait a minute; then look at `/readyz?verbose` of these pods, which says why they refuse the new configuration",
        )


def missing_objects(parts: Parts, _: datetime) -> Iterator[Finding]:
    """Objects that belong to an installation and do not exist."""
    present = {name_of(obj) for obj in parts.objects}
    kinds = {obj["kind"] for obj in parts.objects}
    expected = [obj for obj in parts.expected if obj["kind"] not in parts.unread]
    absent = [obj for obj in expected if name_of(obj) not in present]
    by_helm = any(inside(obj, "metadata", "labels").get("app.kubernetes.io/managed-by") == "Helm" for obj in parts.of_kinds("Deployment"))  # fmt: skip
    absent = [obj for obj in absent if not (by_helm and obj["kind"] in _OPTIONAL and obj["kind"] not in kinds)]
    consequence = "it does not exist, so the API server does not call the webhook, and admits pods as written"
    messages: dict[str, str] = {}
    for obj in absent:
        if obj["kind"] == "ConfigMap" and "data" not in obj:
            yield make_finding(
                "O003",
                name_of(obj),
                "it does not exist, and pods of its namespace that mount it do not start",
                "create the ConfigMap with the DeviceInventory of these nodes as inventory.yaml (docs/node.md)",
            )
            continue
        messages[name_of(obj)] = (
            consequence if obj["kind"] in WEBHOOKS else "it belongs to an installation, and does not exist"
        )
    yield from _findings_for_objects("O003", messages, REAPPLY)


def changed_objects(parts: Parts, _: datetime) -> Iterator[Finding]:
    """Objects that differ from those of this version."""
    messages: dict[str, str] = {}
    present = {name_of(obj): obj for obj in parts.objects}
    for obj in parts.expected:
        actual = present.get(name_of(obj), obj)
        for part in _JUDGED.get(obj["kind"], ()):
            if path := differs(obj.get(part), actual.get(part), part):
                messages[name_of(obj)] = f"it is not as this version ships it, at {path}"
                break
    yield from _findings_for_objects("O004", messages, f"{REAPPLY}; or use the doctor of that version")


def replaced_accounts(parts: Parts, now: datetime) -> Iterator[Finding]:
    """Pods that are older than their ServiceAccount: the API server refuses their tokens, which the kubelet renews within an hour."""
    for account in parts.of_kinds("ServiceAccount"):
        meta = account["metadata"]
        created = moment(meta.get("creationTimestamp"))
        if created is None or now - created > _TOKEN:
            continue
        older: list[str] = []
        for pod in parts.of_kinds("Pod"):
            namespace, begun = pod["metadata"].get("namespace"), moment(pod["metadata"].get("creationTimestamp"))
            uses_account = (namespace, inside(pod, "spec").get("serviceAccountName")) == (
                meta.get("namespace"),
                meta["name"],
            )
            if uses_account and begun is not None and begun < created:
                older.append(pod["metadata"]["name"])
        if older:
            yield make_finding(
                "O005",
                name_of(account),
                f"it was created again after the pods {list_first(older, 3)}, whose tokens the API server refuses for up to an hour",
                f"kubectl -n {meta.get('namespace')} delete pod {' '.join(older)}",
            )


def _findings_for_objects(code: str, messages: Mapping[str, str], remedy: str) -> Iterator[Finding]:
    """Yield a finding for each object; if there are many objects, one for all."""
    if len(messages) <= _MAX:
        for name, message in messages.items():
            yield make_finding(code, name, message, remedy)
        return
    name, message = next(iter(messages.items()))
    yield make_finding(code, name, f"{message}; the same is true of {list_first(list(messages)[1:], _MAX)}", remedy)


def differs(expected: Any, actual: Any, path: str) -> str:
    """Return the path of the first difference from the expected object. Additions, such as a server's defaults, do not count."""
    match expected:
        case dict():
            actual_members = actual if isinstance(actual, dict) else {}
            differing = (differs(value, actual_members.get(key), f"{path}.{key}") for key, value in expected.items())
            return next(filter(None, differing), "")
        case list():
            have_all = actual if isinstance(actual, list) else []
            for number, member in enumerate(expected):
                member_name = member.get("name") if isinstance(member, dict) else None
                namesakes = [
                    item
                    for item in have_all
                    if member_name and isinstance(item, dict) and item.get("name") == member_name
                ]
                found_at = [differs(member, item, f"{path}[{number}]") for item in namesakes or have_all]
                if all(found_at):
                    return found_at[0] if namesakes else f"{path}[{number}]"
            return ""
        case str() if isinstance(actual, str):
            return "" if expected.strip() == actual.strip() else path
    return path if (expected or actual) and expected != actual else ""


def about_webhooks(parts: Parts, _: datetime) -> Iterator[Finding]:
    """Webhook configurations that differ from those generated for the installed configuration."""
    for configuration in parts.of_kinds(*WEBHOOKS):
        configuration_name = name_of(configuration)
        webhooks = items(configuration, "webhooks")
        uncalled = [
            text(webhook.get("name"))
            for webhook in webhooks
            if not (webhook.get("rules") and inside(webhook, "clientConfig").get("caBundle"))
        ]
        if uncalled:
            message = f"{list_first(uncalled, 3)} have no rules or no CA bundle yet, so the API server does not call the webhook"
            yield make_finding("O008", configuration_name, message)
        # Do not compare a webhook configuration of a snapshot: the snapshot keeps only the parts that decide about devices.
        is_complete = all(webhook.get("admissionReviewVersions") for webhook in webhooks)
        if is_complete and (path := _closest_difference(configuration, parts)):
            message = f"it is not as `drawbridge manifests` generates it, at {path}"
            yield make_finding("O004", configuration_name, message, WEBHOOKS_AGAIN)


def _closest_difference(actual: Object, parts: Parts) -> str:
    """Return where a webhook configuration differs from the closest one that drawbridge could have generated; "" if it equals one."""
    webhooks = {text(webhook.get("name")): webhook for webhook in items(actual, "webhooks")}
    closest = ""
    for policy, opt_in in product(("Ignore", "Fail"), (False, True)):
        cpus = parts.configuration.file.cpu_claims
        options = Registration(namespace=parts.home, failure_policy=policy, opt_in=opt_in, cpus=cpus)
        for generated in configurations(parts.configuration.dialects, options):
            if not isinstance(generated, dict) or name_of(generated) != name_of(actual):
                continue
            path = _first_difference(generated, actual, webhooks)
            if not path:
                return ""
            closest = closest if closest and not closest.endswith(("failurePolicy", "namespaceSelector")) else path
    return closest


def _first_difference(generated: Object, stored: Object, webhooks: Mapping[str, Object]) -> str:
    rules: Object = {}
    try:
        rules = msgspec.json.decode(inside(stored, "metadata", "annotations").get(RULES) or "{}", type=dict)
    except (msgspec.DecodeError, ValueError):
        return f"metadata.annotations[{RULES}]"
    for generated_webhook in generated["webhooks"]:
        name = generated_webhook["name"]
        if name not in webhooks:
            return f"webhooks[{name}]"
        actual = webhooks[name]
        compared = {
            key: value for key, value in generated_webhook.items() if key not in ("clientConfig", "matchConditions")
        }
        if inside(actual, "clientConfig").get("service"):
            compared["clientConfig"] = generated_webhook["clientConfig"]
        expressions = [text(condition.get("expression")) for condition in items(actual, "matchConditions")]
        if any(expression.strip() in ("false", "!true") for expression in expressions):
            return f"webhooks[{name}].matchConditions"
        # Any added or removed term changes what a selector selects, so the selectors must be equal.
        for key in ("namespaceSelector", "objectSelector"):
            if (actual.get(key) or {}) != (generated_webhook.get(key) or {}):
                return f"webhooks[{name}].{key}"
        if rules.get(name) and actual.get("rules") and differs(rules[name], actual["rules"], "rules"):
            return f"webhooks[{name}].rules"
        if path := differs(compared, actual, f"webhooks[{name}]"):
            return path
    return ""


def about_certificates(parts: Parts, now: datetime) -> Iterator[Finding]:
    """Serving certificates that are missing or invalid, CA bundles of another authority, and a missing Secret with the signing keys."""
    if parts.of_kinds("Secret") and parts.find("Secret", f"{names.NAME}-signature", parts.home) is None:
        yield make_finding(
            "O003",
            f"Secret/{parts.home}/{names.NAME}-signature",
            "it does not exist, so no template can be verified",
            "check that the authority's Deployment runs: the authority writes this Secret again, from its copy of the keys",
        )
    registered: list[Object] = []
    for configuration in parts.of_kinds(*WEBHOOKS):
        hooks = items(configuration, "webhooks")
        # A webhook that is called by URL does not serve the certificate of our Secret.
        by_service = not hooks or any(inside(hook, "clientConfig", "service") for hook in hooks)
        if configuration["metadata"]["name"] == names.NAME and by_service:
            registered.append(configuration)
    if not registered or any(map(_has_other_keeper, registered)):
        return
    if "Secret" in parts.unread:
        return
    secret = parts.find("Secret", names.NAME, parts.home)
    secret_name = f"Secret/{parts.home}/{names.NAME}"
    data = {key: _decoded(value) for key, value in inside(secret, "data").items()}
    problem = _certificate_problem(data, f"{names.NAME}.{parts.home}.svc", now) if secret else "it does not exist"
    if problem:
        remedy = f"check that Deployment {parts.home}/drawbridge-authority runs: the authority issues a new certificate"
        yield make_finding("O006", secret_name, f"{problem}, so the API server cannot call the webhook", remedy)
        return
    for configuration in registered:
        if not all(_trusts(bundle, data["tls.crt"]) for bundle in _bundles(configuration)):
            problem = f"its caBundle does not contain the CA that signed the serving certificate in {secret_name}"
            yield make_finding("O007", name_of(configuration), problem, _remedy_for_bundle(parts))


def about_bundles(parts: Parts, now: datetime) -> Iterator[Finding]:
    """CA bundles that have expired or are not from our authority, unless the Secrets show whether the API server trusts the webhook."""
    others = [configuration for configuration in parts.of_kinds(*WEBHOOKS) if _has_other_keeper(configuration)]
    for configuration in parts.of_kinds(*WEBHOOKS) if "Secret" in parts.unread else others:
        for bundle in _bundles(configuration):
            authorities: list[Certificate] = []
            with suppress(ValueError):
                authorities = load_pem_x509_certificates(bundle)
            ends = [authority.not_valid_after_utc for authority in authorities]
            subjects = [authority.subject.rfc4514_string() for authority in authorities]
            is_foreign = not any(subject.startswith(f"CN={AUTHORITY_NAME} ") for subject in subjects)
            problem = ""
            if ends and max(ends) <= now:
                problem = f"its caBundle expired at {max(ends):%Y-%m-%d %H:%M}"
            elif ends and is_foreign and configuration not in others:
                problem = f"its caBundle has the CA {subjects[0]}, which is not drawbridge's authority"
            if problem:
                yield make_finding("O007", name_of(configuration), problem, _remedy_for_bundle(parts))


def _bundles(configuration: Object) -> list[bytes]:
    bundles = {text(inside(hook, "clientConfig").get("caBundle")) for hook in items(configuration, "webhooks")}
    return [_decoded(bundle) for bundle in sorted(bundles - {""})]


def _has_other_keeper(configuration: Object) -> bool:
    """Return whether another program than our authority writes the CA bundle."""
    annotations = inside(configuration, "metadata", "annotations")
    return annotations.get(BUNDLE_KEEPER) == "other" or any(key in annotations for key in OTHER_KEEPERS)


def _remedy_for_bundle(parts: Parts) -> str:
    return f"check that Deployment {parts.home}/drawbridge-authority runs: the authority corrects the bundle within a second"


def served_certificates(parts: Parts, _: datetime) -> Iterator[Finding]:
    """Expired certificates that replicas serve, if the Secrets with the certificates cannot be read."""
    if "Secret" not in parts.unread:
        return
    for answer in parts.answers:
        for days in [certificate for certificate in answer.certificates.values() if certificate < 0]:
            yield make_finding("O006", parts.name_of_pod(answer.pod), f"it serves a certificate that expired {-days:.0f} days ago", "check that Deployment drawbridge-authority runs")  # fmt: skip


def _certificate_problem(data: Mapping[str, bytes], name: str, now: datetime) -> str:
    """Return why a certificate cannot be served; "" if it can."""
    try:
        span = authority.span(data["tls.crt"])
        called = authority.names(data["tls.crt"])
    except (KeyError, ValueError):
        return "it has no certificate that can be read"
    if now >= span.end:
        return f"its certificate expired at {span.end:%Y-%m-%d %H:%M}"
    if not span.valid(now):
        return f"its certificate is not valid before {span.start:%Y-%m-%d %H:%M}"
    if name not in called:
        return f"its certificate is for {', '.join(sorted(called))}, and not for {name}"
    return ""


def _decoded(value: object) -> bytes:
    with suppress(NotBase64, ValueError):
        return b64decode(text(value), validate=True)
    return b""


def _trusts(bundle: bytes, certificate: bytes) -> bool:
    blocks = [block + b"-----END CERTIFICATE-----\n" for block in bundle.split(b"-----END CERTIFICATE-----")[:-1]]
    try:
        return any(authority.signed_by(certificate, block.strip()) for block in blocks)
    except ValueError:
        return False


def without_authority(parts: Parts, now: datetime) -> Iterator[Finding]:
    """The finding that the authority has no ready replica, which explains missing certificates, after those that `not_running` ranks higher."""
    found = [finding for finding in not_running(parts, now) if finding.code == "O009"]
    authorities = [finding for finding in found if finding.object.endswith("/drawbridge-authority")]
    if authorities:
        yield from found[: found.index(authorities[0]) + 1]


def not_running(parts: Parts, _: datetime) -> Iterator[Finding]:
    """Workloads with replicas that are not ready, or without replicas."""
    ranked: list[tuple[int, bool, Finding]] = []
    for workload in parts.of_kinds(*WORKLOADS):
        spec, status = inside(workload, "spec"), inside(workload, "status")
        if workload["kind"] == "Deployment":
            desired, ready = number(spec, "replicas", 1), number(status, "readyReplicas")
        else:
            desired, ready = number(status, "desiredNumberScheduled"), number(status, "numberReady")
        component = _component(workload)
        code, meta = "O010" if ready else "O009", workload["metadata"]
        if workload["kind"] == "Deployment" and not desired:
            code, message = "O009", f"it has 0 replicas: {_WITHOUT.get(component, 'its work is not done')}"
            remedy = f"kubectl -n {meta.get('namespace')} scale deployment {meta['name']} --replicas=2"
        elif not desired and status.get("observedGeneration"):
            labels = ",".join(f"{key}={value}" for key, value in inside(_pod_of(workload), "nodeSelector").items())
            message = f"it selects no node: no node that its pods may use has the labels {labels or '(none required)'}"
            remedy = f"label each node on which it is to run (kubectl label node NAME {labels or 'KEY=VALUE'}), or delete the DaemonSet"
        elif "observedGeneration" in status and (ready < desired or status.get("unavailableReplicas")):
            message = f"{ready} of {desired} replicas are ready: {_not_ready_reasons(workload, parts)}"
            remedy = "correct what prevents readiness (docs/commands.md#drawbridge-doctor); the pods' log says more"
        else:
            continue
        finding = make_finding(code, name_of(workload), message, remedy)
        ranked.append((1 + min(ready, 1) if desired else 0, component != "authority", finding))
    # Order: no replica wanted, no replica ready, some replicas ready. In each group the authority comes first, because other
    # workloads do not start without its certificates.
    yield from (finding for *_, finding in sorted(ranked, key=lambda entry: entry[:2]))


def _pod_of(workload: Object) -> Object:
    return inside(workload, "spec", "template", "spec")


def _component(obj: Object) -> str:
    return text(inside(obj, "spec", "template", "metadata", "labels").get("app.kubernetes.io/component"))


def _not_ready_reasons(workload: Object, parts: Parts) -> str:
    """Return why the pods of a workload are not ready."""
    for condition in items(inside(workload, "status"), "conditions"):
        if condition.get("type") == "ReplicaFailure" and condition.get("status") == "True":
            return f"no pod can be created: {text(condition.get('message'))[:_QUOTED]}"
    home, component = workload["metadata"].get("namespace"), _component(workload)
    reasons: list[str] = []
    for pod in parts.of_kinds("Pod"):
        metadata, status = inside(pod, "metadata"), inside(pod, "status")
        labels = inside(metadata, "labels")
        if metadata.get("namespace") != home or labels.get("app.kubernetes.io/component") != component:
            continue
        reasons += [
            f"not scheduled: {text(condition.get('message'))[:_QUOTED]}"
            for condition in items(status, "conditions")
            if condition.get("type") == "PodScheduled" and condition.get("status") == "False"
        ]
        reasons += failing_containers(pod, restarts=0)
        for answer in parts.answers:
            if answer.pod == metadata["name"]:
                reasons += [line for line in answer.lines if "[-]" in line]
    if reasons:
        return reasons[0]
    refused = parts.refusals.get(name_of(workload), "")
    return f"no pod can be created: {refused[:_QUOTED]}" if refused else "its pods give no reason"


def several_versions(parts: Parts, _: datetime) -> Iterator[Finding]:
    """Components of different versions."""
    images: dict[str, list[Object]] = {}
    for workload in parts.of_kinds(*WORKLOADS):
        for image in images_of(workload):
            images.setdefault(image, []).append(workload)
    if len(images) > 1:
        users = {image: [workload["metadata"]["name"] for workload in using] for image, using in images.items()}
        rarest = min(images.values(), key=len)
        yield make_finding(
            "O011",
            name_of(rarest[0]),
            f"parts of drawbridge run different images: {'; '.join(f'{list_first(using, 4)}: {image}' for image, using in users.items())}",
        )


def images_of(workload: Object) -> list[str]:
    """List the images of a workload's containers, except that of kube-scheduler."""
    containers = items(_pod_of(workload), "containers")
    images = [text(container.get("image")) for container in containers if container.get("name") != "scheduler"]
    return list(filter(None, images))


def without_leader(parts: Parts, now: datetime) -> Iterator[Finding]:
    """Leases that no replica holds, and leaders whose clock is ahead."""
    for workload, name in zip(("drawbridge-controller", "drawbridge-allocator"), LEASES, strict=True):
        deployment = parts.find("Deployment", workload, parts.home)
        if not inside(deployment, "status").get("readyReplicas"):
            continue
        lease = parts.find("Lease", name, parts.home)
        spec = inside(lease, "spec")
        if not spec.get("holderIdentity"):
            yield make_finding(
                "O012",
                f"Lease/{parts.home}/{name}",
                "no replica holds it, so no replica writes" if lease else "it does not exist, so no replica leads",
                f"check that ServiceAccount {parts.home}/{workload} may write the Lease; the log of Deployment {workload} says what prevents this",
            )
        renewed = moment(spec.get("renewTime"))
        if renewed and renewed - now > _SKEW:
            yield make_finding(
                "O013",
                f"Lease/{parts.home}/{name}",
                f"{text(spec.get('holderIdentity'))} has renewed it at {spec['renewTime']}, which is in the future",
            )


def about_modes(parts: Parts, _: datetime) -> Iterator[Finding]:
    """Namespaces whose mode label has an invalid value."""
    for namespace in parts.of_kinds("Namespace"):
        wrong = mistake_of(inside(namespace, "metadata", "labels").get(names.MODE_LABEL))
        if wrong and not namespace["metadata"].get("deletionTimestamp"):
            yield make_finding("D214", name_of(namespace), wrong)


def replica_warnings(parts: Parts, _: datetime) -> Iterator[Finding]:
    """Warnings of replicas, each line once."""
    pod_of_line: dict[str, str] = {}
    for answer in parts.answers:
        for line in answer.lines:
            if line.startswith("[!]") and not line.startswith(
                "[!]lease:"
            ):  # every replica except the leader has this line
                pod_of_line.setdefault(line, answer.pod)
    for line, pod in pod_of_line.items():
        yield make_finding("O018", parts.name_of_pod(pod), line[:400], basis="its answer to /readyz")


def answer_of(pod: str, readiness: str, metrics: str) -> ReplicaAnswer:
    """Read the texts of a replica's /readyz and /metrics."""
    values: dict[str, float] = {}
    configuration = ""
    for line in metrics.splitlines():
        name, _, value = line.rpartition(" ")
        if name.startswith("drawbridge_configuration_info{"):
            configuration = name.partition('sha256="')[2].partition('"')[0]
        elif name.endswith("_certificate_days") and not line.startswith("#"):
            values[name] = float(value)
    lines = tuple(line for line in readiness.splitlines() if line.startswith(("[-]", "[!]")))
    return ReplicaAnswer(pod, lines, values, configuration)
