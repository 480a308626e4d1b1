"""Every reader of a file or request reports what is wrong with the text: it raises only its own exceptions, whatever types the values in the text have."""

import asyncio
import json
import random
import traceback
from contextlib import AsyncExitStack, suppress
from io import BytesIO
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import pytest
import yaml

from analysis.errors import Broken
from cli.commands.driver import facts_in
from cluster import manifests, resources
from cluster.errors import ApiError, ConfigError, from_response
from cluster.kubernetes import answers
from cluster.kubernetes.connection import kubeconfig
from node.audit.other_drivers import UnknownForm, UnreadableState, read_other_driver, read_state
from node.audit.reservations import InvalidAnswer, read_reservations
from node.checkpoint import BrokenCheckpoint, _sum
from node.checkpoint import decode as read_checkpoint
from node.inventory import reading
from node.plugins import PluginFault, answer_from_spec
from tests import shapes
from tests.allocator.service import sidecar
from tests.allocator.service.test_quotas import quota_of
from tests.cli.running import run
from tests.cluster import peer
from tests.corpus.move import autoscaled, plugins
from tests.limits import draws
from tests.webhook.admission.test_decide import review
from tests.webhook.admission.test_decide import state as admission_state
from tests.webhook.admission.test_shapes import RESOURCES
from webhook import admission
from webhook.service.configuration_file import ConfigurationError, load_configuration

EXAMPLES = Path(__file__).parents[1] / "manifests" / "examples"
POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "1", "koordinator.sh/gpu": "50"}}}]}}  # fmt: skip


def reader_running(*arguments, name="file.yaml"):
    """Return a reader that runs a command on the text in a file; a refusal is a valid answer."""

    def read(text, folder):
        file = folder / name
        file.write_bytes(text)
        pod = folder / "pod.json"
        pod.write_text(json.dumps(POD))
        result = run(*(argument.format(file=file, pod=pod, folder=folder) for argument in arguments))
        assert result.exception is None or isinstance(result.exception, SystemExit), "".join(traceback.format_exception(result.exception))  # fmt: skip
        assert "this is a bug" not in result.output, result.output

    return read


def readers_in_turn(*readers):
    """Return a reader that calls these readers in turn."""
    all_readers = cycle(readers)

    def read(text, folder):
        next(all_readers)(text, folder)

    return read


def reader_calling(function, *allowed_errors):
    """Return a reader that calls a function with the text; the allowed exceptions are valid answers."""

    def call_function(text, _):
        with suppress(*allowed_errors):
            function(text)

    return call_function


def read_kubelet_state(text):
    return read_state(json.dumps({"Data": text.decode(errors="surrogateescape"), "Checksum": 1}).encode())


def read_our_checkpoint(text):
    body = text + b"\n"
    numbers = b"1 1 %d" % len(body)
    return read_checkpoint(b"drawbridge-checkpoint %s %s\n%s" % (numbers, _sum(numbers, body), body))


def read_driver_checkpoint(text):
    return read_other_driver(b'{"checksum":1,"v1":%s}' % text, "gpu.nvidia.com")


def documents(path):
    return [document.object for document in manifests.read_leniently([EXAMPLES / path])[0]]


def read_facts(text, folder):
    file = folder / "facts"
    file.write_bytes(text)
    with click.Context(click.Command("driver")):
        reader_calling(lambda _: facts_in(str(file)), Broken, manifests.ManifestError)(text, folder)


class Allocator:
    """An allocator service. Its event loop runs only during a request."""

    def __init__(self):
        self._runner, self._stack = None, AsyncExitStack()

    async def _begin(self):
        cluster = sidecar.loaded(
            *sidecar.fleet(),
            quota_of(gpu__devices=3),
            *(sidecar.claim(name) for name in "ab"),
            sidecar.pod("p", "a"),
        )
        self._sidecar = await self._stack.enter_async_context(sidecar.running(cluster))

    async def _post(self, path, body):
        allocator = self._sidecar
        await sidecar.until(lambda: allocator.service.lead.leads)
        if b'"TOKEN"' in body:
            _, answer_to_pod = await allocator.plugin("prefilter", {"pod": sidecar.pod("p", "a")})
            body = body.replace(b'"TOKEN"', json.dumps(answer_to_pod["token"]).encode())
        async with allocator._sessions["plugin"].post(f"http://drawbridge{path}", data=BytesIO(body)) as answer:
            answer_body = await answer.read()
            assert answer.status in (200, 202, 400, 404, 409, 410, 413, 503), answer_body
            return answer.status

    def reader_of(self, path):
        def read(text, _):
            if self._runner is None:
                self._runner = asyncio.Runner()
                self._runner.run(self._begin())
            self._runner.run(self._post(path, text))

        return read

    def close(self):
        if self._runner is not None:
            self._runner.run(self._stack.aclose())
            self._runner.close()
            self._runner = None


ALLOCATOR = Allocator()


@pytest.fixture(scope="module", autouse=True)
def close_allocator():
    yield
    ALLOCATOR.close()


def decide_reviews(text, _):
    for path in ("mutate", "validate"):
        for state in STATES_BY_MODE.values():
            with suppress(admission.ReviewError):
                admission.decide_review(path, text, state)


def read_configuration_file(text, folder):
    (folder / "drawbridge.yaml").write_bytes(text)
    with suppress(ConfigurationError):
        load_configuration(str(folder / "drawbridge.yaml"))


def read_kubeconfig(text, folder):
    file = folder / "kubeconfig"
    file.write_bytes(text)
    if text.count(b"[") > 500:  # PyYAML takes a second for a thousand objects
        return
    with suppress(ConfigError):
        asyncio.run(kubeconfig(str(file))())


def reader_of_answers(resource):
    """Return a reader of a server's answers: an item of a list, a whole list, an object of a watch event, and an object."""

    def read(text, _):
        items = b'{"metadata":{},"items":[%s]}' % text
        for decode, data in ((answers.page, items), (answers.page, text), (answers.line, b'{"type":"ADDED","object":%s}' % text), (answers.decode_object, text)):  # fmt: skip
            with suppress(ApiError):
                decode(data, resource)

    return read


STATES_BY_MODE = {mode: admission_state(mode=mode) for mode in ("enforce", "observe")}
CHECKPOINT_RECORD = {
    "uid": "u",
    "namespace": "n",
    "name": "c",
    "pool": "p",
    "devices": [{"request": "r", "device": "d"}],
}
KUBELET_STATE = {"ClaimInfoStateList": [{"ClaimUID": "u", "ClaimName": "c", "Namespace": "n", "PodUIDs": {"p": {}}, "DriverState": {"d": {"Devices": [{"PoolName": "p", "DeviceName": "d", "ShareID": "s"}]}}}]}  # fmt: skip
OTHER_CHECKPOINT = {"preparedClaims": {"0123-4567": {"checkpointState": "PrepareCompleted", "namespace": "n", "name": "c", "preparedDevices": [{"devices": [{"poolName": "p", "deviceName": "d"}]}]}}}  # fmt: skip
RESERVATIONS = {"node": "n", "reservations": [{"namespace": "a", "claim": "c", "uid": "u", "inDoubt": False, "devices": [{"driver": "d", "pool": "p", "device": "x", "shareID": None}]}]}  # fmt: skip
CDI = {"cdiVersion": "0.6.0", "kind": "x/y", "devices": [{"name": "u-0", "annotations": {"drawbridge.dev/request": "r"}, "containerEdits": {"env": ["A=B"]}}]}  # fmt: skip
FACTS = {"gpu-0": {"attributes": {"a": "b"}, "capacity": {"memory": "1Gi"}}}
KUSTOMIZATION = {"resources": ["pod.json"], "namePrefix": "a-", "images": [{"name": "x"}], "patches": [{"path": "p.yaml", "target": {"kind": "Pod"}}, {"patch": "[]"}], "configMapGenerator": [{"name": "c", "files": ["a=pod.json"]}], "components": ["../c"]}  # fmt: skip
DEPLOYMENT_OBJECTS = [
    {"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": {"name": "a"}, "spec": {"source": {"path": ".", "kustomize": {"namePrefix": "a", "patches": [{"patch": "a"}], "components": ["c"]}, "helm": {"values": "a: 1", "valuesObject": {"resources": {"limits": {"nvidia.com/gpu": 1}}}, "parameters": [{"name": "a", "value": "1"}]}}, "sources": [{"path": "b"}]}},
    {"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "metadata": {"name": "a"}, "spec": {"chart": {"spec": {"chart": "./c"}}, "values": {"resources": {"limits": {"nvidia.com/gpu": 1}}}, "postRenderers": [{"kustomize": {"patches": [{"patch": "a"}]}}]}},
    {"apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "metadata": {"name": "a"}, "spec": {"path": ".", "targetNamespace": "n", "patches": [{"patch": "a"}], "postBuild": {"substitute": {"a": "b"}}}},
]  # fmt: skip
RESOURCE_DEFINITION = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "pods.x.io"}, "spec": {"group": "x.io", "scope": "Namespaced", "names": {"kind": "P", "plural": "pods"}, "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}}}]}}  # fmt: skip
POD_WITH_ANNOTATIONS = {**POD, "metadata": {"name": "p", "annotations": {"drawbridge.dev/templates": "{}", "drawbridge.dev/original": "{}", "k8s.v1.cni.cncf.io/networks": '[{"name": "a"}]', "scheduling.koordinator.sh/device-allocate-hint": '{"gpu": {}}', "nvidia.com/use-gputype": "A100"}}}  # fmt: skip
REVIEWS = [json.loads(review(shapes.examples()[kind][0] if kind != "Pod" else POD, operation=operation, old=POD if operation == "UPDATE" else None, group=group, resource=resource)) for kind, (group, resource) in RESOURCES.items() for operation in ("CREATE", "UPDATE", "DELETE")]  # fmt: skip
# The smallest example of each kind that a snapshot has, and a few more objects.
SNAPSHOT = {"apiVersion": "v1", "kind": "List", "items": [POD, *(min(samples, key=lambda sample: len(json.dumps(sample))) for kind, samples in shapes.examples().items() if kind not in {"Component", "Kustomization", "DrawbridgeConfiguration", "DeviceInventory"}), *shapes.examples()["ResourceClaim"][:3], *(sidecar.fleet(1, 1)), sidecar.claim("a"), sidecar.pod("b", "a")]}  # fmt: skip
POD_QUESTION = {"pod": sidecar.pod("p", "a"), "nodes": {"count": 2, "digest": 7}}
# Allocator._post replaces TOKEN with the token of an answer to the pod's prefilter call.
ENDPOINTS = {
    "/plugin/v1/prefilter": [POD_QUESTION, POD_QUESTION | {"suppose": "g"}],
    "/plugin/v1/filter": [{"token": "TOKEN", "node": "n0", "add": [sidecar.pod("q", "b")], "remove": [sidecar.pod("q", "a")]}],
    "/plugin/v1/reserve": [{"token": "TOKEN", "node": "n0"}],
    "/plugin/v1/unreserve": [{"token": "TOKEN", "node": "n0", "reservation": "TOKEN"}],
    "/plugin/v1/commit": [{"reservation": "x"}],
    "/plugin/v1/postfilter": [{"pod": sidecar.pod("p", "a"), "nodes": ["n0"]}, {"group": [{"pod": sidecar.pod("p", "a"), "node": "n0"}]}],
}  # fmt: skip
KUBECONFIG = yaml.safe_load(peer.kubeconfig("http://127.0.0.1:1"))
KUBECONFIG_USERS = ({"token": "t", "as": "x"}, {"client-certificate-data": "eA==", "client-key-data": "eA=="}, {"username": "a", "password": "b"}, {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "/nowhere/program", "args": ["a"], "env": [{"name": "A", "value": "b"}], "interactiveMode": "Never"}}, {"auth-provider": {"name": "oidc", "config": {"id-token": "a.b.c"}}}, {"tokenFile": "nowhere"})  # fmt: skip

READERS = {
    "reviews": (decide_reviews, REVIEWS),
    "mounted configuration": (read_configuration_file, [*documents("configuration.yaml"), *documents("dialects.yaml"), *documents("rules"), *shapes.examples()["ConfigMap"]]),
    "kubeconfig": (read_kubeconfig, [KUBECONFIG | {"users": [{"name": "u", "user": user}]} for user in KUBECONFIG_USERS]),
    **{f"call of {path}": (ALLOCATOR.reader_of(path), bodies) for path, bodies in ENDPOINTS.items()},
    **{f"{resource.kind} of a server": (reader_of_answers(resource), shapes.examples()[resource.kind]) for resource in resources.ALL if resource.kind in shapes.examples()},
    "snapshot": (readers_in_turn(*(reader_running(*words.split(), "-f", "{file}") for words in ("doctor", "explain pod p", "explain claim a", "survey", "simulate", "check", "translate", "free", "simulate --claims", "quota", "resize pod/b memory=1Gi"))), [SNAPSHOT]),
    "kustomization": (reader_running("translate", "--check", "{folder}", name="kustomization.yaml"), [KUSTOMIZATION]),
    "deployed": (reader_running("translate", "--check", "{folder}"), DEPLOYMENT_OBJECTS),
    "plugins": (reader_running("survey", "-f", "{file}", "-f", "{pod}"), [plugins.config_map(a=plugins.sharing()), plugins.policy("a")]),
    "autoscalers' pools": (reader_running("translate", "-f", "{pod}", "--inventory", "{file}"), [autoscaled.pool(taints=[{"key": "a", "effect": "NoSchedule"}], requirements=[{"key": "a", "operator": "In", "values": ["b"]}])]),
    "definition": (reader_running("translate", "-f", "{pod}", "--inventory", "{file}"), [RESOURCE_DEFINITION]),
    "annotations": (reader_running("translate", "-f", "{file}"), [POD_WITH_ANNOTATIONS]),
    "configuration": (reader_running("translate", "-f", "{pod}", "--config", "{file}"), [*documents("configuration.yaml"), *documents("dialects.yaml"), *documents("rules")]),
    "configuration of manifests": (reader_running("manifests", "--config", "{file}"), documents("configuration.yaml")),
    "configuration of dialects": (reader_running("dialects", "--config", "{file}"), documents("dialects.yaml")),
    "cases": (reader_running("test", "{folder}", name="drawbridge-test.yaml"), documents("cases")),
    "quotas": (reader_running("quota", "-f", "{file}"), shapes.examples()["DeviceQuota"]),
    "inventory": (reader_running("translate", "-f", "{pod}", "--inventory", "{file}"), [sample for kind in ("ResourceSlice", "DeviceClass", "Node") for sample in shapes.examples()[kind]]),
    "dump": (reader_running("survey", "-f", "{file}"), [{"apiVersion": "v1", "kind": "List", "items": [POD, *shapes.examples()["ResourceSlice"][:2]]}]),
    "device inventory": (reader_calling(lambda text: [str(finding) for document in manifests.parse(text) for finding in reading.read_inventory(document.object)[1]], manifests.ManifestError), documents("inventories")),
    "facts": (read_facts, [FACTS]),
    "kubelet's state": (reader_calling(read_kubelet_state, UnreadableState), [KUBELET_STATE]),
    "kubelet's checkpoint": (reader_calling(read_state, UnreadableState), [{"Data": "{}", "Checksum": 1}]),
    "our checkpoint": (reader_calling(read_our_checkpoint, BrokenCheckpoint), [{"claims": {"u": CHECKPOINT_RECORD}}]),
    "another driver's checkpoint": (reader_calling(read_driver_checkpoint, UnknownForm), [OTHER_CHECKPOINT]),
    "list of another driver": (reader_calling(lambda text: read_other_driver(text, "x"), UnknownForm), [{"kind": "Checkpoint", "preparedClaims": [{"uid": "a"}]}]),
    "reservations": (reader_calling(lambda text: read_reservations(text, "n"), InvalidAnswer), [RESERVATIONS]),
    "error of a server": (reader_calling(lambda text: from_response(500, text)), [{"kind": "Status", "code": 500, "details": {"causes": [{"field": "a"}]}}]),
    "CDI file": (reader_calling(lambda text: answer_from_spec("d", DECODED_RECORD, text), PluginFault), [CDI]),
}  # fmt: skip
DECODED_RECORD = next(
    iter(read_our_checkpoint(json.dumps({"claims": {"u": CHECKPOINT_RECORD}}).encode()).claims.values())
)


def mutated_document(draw, originals):
    """Return a document with members of other types, and sometimes with changed bytes or deep nesting."""
    obj = draw.choice(originals)
    for _ in range(draw.choice((1, 1, 2))):
        obj = shapes.bent(obj, draw)
    chance = draw.random()
    try:
        text = json.dumps(obj).encode()
    except ValueError:
        return b"{}"
    if chance < 0.15:
        text = bytearray(text)
        for _ in range(draw.randint(1, 5)):
            text[draw.randrange(len(text))] = draw.randrange(256)
    elif chance < 0.25:
        at = draw.randrange(len(text))
        depth = draw.choice((200, 2_000, 200_000))
        piece = draw.choice(
            (
                b"[" * depth,
                b"[" * depth + b"]" * depth,
                b'{"a":' * depth,
                b"\xff\xfe",
                b"\x00",
                b"\xed\xa0\x80",
                b"1e999999",
                b"9" * 5_000,
                b"-0",
                b"NaN",
                b"\\ud800",
            )
        )
        text = text[:at] + piece + text[at:]
    elif chance < 0.3:
        text = text.decode(errors="replace").encode(
            draw.choice(("utf-16", "utf-32", "utf-8-sig", "latin-1")), "replace"
        )
    return bytes(text)


def try_reader(name, draw, times):
    read, originals = READERS[name]
    with TemporaryDirectory() as folder:
        for _ in range(times):
            text = mutated_document(draw, originals)
            try:
                read(text, Path(folder))
            except Exception as error:
                error.add_note(f"{name}: {text[:2_000]!r}")
                raise


HARD_VALUES = (b"[" * 5_000, b'"\xff"', b"1e999999", b"9" * 5_000, b'"\\u0000"', b'"\\ud800"')


@pytest.mark.parametrize("name", READERS)
def test_a_reader_raises_only_its_own_exceptions(name, tmp_path):
    read, [original, *_] = READERS[name]
    # Each value is in another member: an unknown one, or one of the first three.
    for value, member in zip(HARD_VALUES, cycle(["x", *list(original)[:3]]), strict=False):
        read(b'{"%s": %s, %s' % (member.encode(), value, json.dumps(original).encode()[1:]), tmp_path)
        read(json.dumps(original | {member: 0}).encode().replace(b": 0", b": " + value), tmp_path)
    try_reader(name, random.Random(f"readers {name}"), draws(60))
