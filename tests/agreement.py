"""Runs all commands on the same object: `ask` returns an `Answer` for each command, with the outcomes that docs/translation.md defines.

`tests/contradictions.py` compares the answers. Only the part "Adapters" knows the options, JSON fields and texts of the commands.
"""

import base64
import gc
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jsonpatch
import msgspec

from analysis.arrivals import brings_pods, created_pods
from analysis.configuration import ConfigurationInForce, features_of, server_named
from analysis.loading import Reading, reading_of
from cluster import manifests
from dashboard.whatif import WhatIfQuestion, what_if
from dra.codes import ACCEPTED
from tests.cli.running import run
from webhook.admission import decide_review
from webhook.names import DECISION
from webhook.state import Configuration
from webhook.state.configuration import read_configuration

Object = dict[str, Any]
Key = tuple[str, str]  # a container ("" for the pod as a whole), and a key of its request

FLEET_KINDS = ("Node", "ResourceSlice", "DeviceClass")  # kinds of the objects in the file of the fleet
TRANSLATED_OUTCOMES = {"translated", "approximated"}
SILENT = "silent"  # the outcome if the command names no key of the object


class Answer(NamedTuple):
    """The answer of a command about one object. A field is None if the command does not answer this question."""

    outcome: str | None = None
    keys: Mapping[Key, str] | None = None
    refused: bool | None = None
    codes: frozenset[str] = frozenset()
    # Codes of refusals that the mode or the configuration turns into warnings.
    withheld: frozenset[str] = frozenset()
    fits: bool | None = None
    mode: str | None = None
    moved: frozenset[str] | None = None  # keys that the webhook removes from the pod
    devices: int | None = None  # devices that the pods get in a simulation
    said: str = ""  # the texts of the command about the object


class Scene(NamedTuple):
    """One object, the fleet (objects of `FLEET_KINDS`), all further objects (the surroundings), and the options of every command."""

    object: Object
    surroundings: Sequence[Object] = ()
    fleet: Sequence[Object] = ()
    configuration: Object | None = None
    minor: int = 0  # of the server's Kubernetes version; 0 if the options name no version

    @property
    def name(self) -> str:
        return str(self.object["metadata"].get("name", ""))

    @property
    def namespace(self) -> str:
        return str(self.object["metadata"].get("namespace", "default"))

    @property
    def id(self) -> str:
        return f"{self.object['kind']}/{self.namespace}/{self.name or self.object['metadata'].get('generateName', '')}"


def outcome_of(keys: Mapping[Key, str]) -> str:
    """Return the outcome of an object from the outcomes of its keys. Variables and runtime classes that are left count only if the object has nothing else."""
    outcomes = {outcome for (_, key), outcome in keys.items() if "/" in key or outcome != "left"} or set(keys.values())
    if "refused" in outcomes:
        return "refused"
    if outcomes & TRANSLATED_OUTCOMES and outcomes - TRANSLATED_OUTCOMES:
        return "partly"
    return next(
        (outcome for outcome in ("approximated", "translated", "unknown", "left", "served") if outcome in outcomes),
        SILENT,
    )


# ---- Adapters: only this part knows options, fields and texts of the commands

# A container and a key, at the start of survey's message about an object that counts keys, such as a queue of Kueue.
CONTAINER_AND_KEY = re.compile(r"container (\S+): (\S+): ")
CODE = re.compile(r"\[([RD]\d{3})\]")
# Messages of `explain` if a pod fits on a node, and if it fits on no node.
ROOM = re.compile(
    r"devices for it are free(, and| on \d+ nodes)|device plugins have room|devices do not keep it|has room for it, and"
)
NO_ROOM = re.compile(
    r"no node could serve|none of the \d+ nodes|the only node|no node has|and no node does$|but not where it may run|but pods before it"
)
# If several decisions name one key, the last of these outcomes counts.
OUTCOMES = ("served", "translated", "approximated", "left", "unknown", "refused")


def outcome_in(key_or_decision: Mapping[str, Any]) -> str:
    """Return the outcome of a key or decision; fail if docs/translation.md does not define it."""
    assert key_or_decision["outcome"] in OUTCOMES, key_or_decision
    return str(key_or_decision["outcome"])


def answer_from_decisions(
    decisions: Sequence[Mapping[str, Any]],
    refusals: Iterable[str] = (),
    texts: Iterable[str] = (),
    *,
    requests_devices: bool = True,
) -> Answer:
    """Combine the decisions of translate and explain, or the keys of survey, into one answer.

    An object whose only keys are selectors and variables has an answer without keys, unless `requests_devices` is true.
    """
    keys: dict[Key, str] = {}
    selectors_left: set[Key] = set()  # selectors and annotations that a translation leaves in the object
    for decision in decisions:
        container, key, outcome = decision.get("container") or "", decision.get("key") or "", outcome_in(decision)
        if key and OUTCOMES.index(outcome) >= OUTCOMES.index(keys.get((container, key), outcome)):
            keys[container, key] = outcome
        if not (container or decision.get("dialect") or key.startswith("/")) and outcome in ("left", "unknown"):
            selectors_left.add((container, key))
    variables = {(container, key) for (container, key), outcome in keys.items() if "/" not in key and outcome == "left"}
    if not requests_devices and set(keys) <= {*selectors_left, *variables}:
        keys = {}
    # The refusal of a pod's own claims has no key. In a mode that admits the pod, the outcome is "left".
    is_withheld = any(decision.get("potentialOutcome") for decision in decisions)
    requests = {key: outcome for key, outcome in keys.items() if key not in {*selectors_left, *variables}} or keys
    return Answer(
        outcome="refused" if refusals else "left" if is_withheld and not keys else outcome_of(requests),
        keys=keys,
        refused=bool(refusals),
        codes=frozenset(
            {decision["code"] for decision in decisions if decision.get("code")}.union(*map(CODE.findall, refusals))
        ),
        withheld=frozenset(
            decision["code"] for decision in decisions if decision.get("code") and outcome_in(decision) != "refused"
        ),
        mode=next((decision["mode"] for decision in decisions if decision.get("mode")), "enforce"),
        moved=frozenset(key for (_, key), outcome in keys.items() if outcome in TRANSLATED_OUTCOMES),
        said=" ".join((*refusals, *texts, *(decision.get("detail") or "" for decision in decisions))),
    )


def translate(scene: Scene, folder: Path, options: Sequence[str]) -> Answer:
    document = asked("translate", *files(scene, folder, "--inventory"), *options)
    (folder / "translated.json").write_text(as_list(document["items"]))
    texts = {name: [line for line in document[name] if line.startswith(scene.id)] for name in ("refusals", "warnings")}
    return answer_from_decisions(
        [decision for decision in document["decisions"] if decision["object"] == scene.id],
        texts["refusals"],
        texts["warnings"],
        requests_devices=report(scene, folder, options).outcome != SILENT,
    )


def check(scene: Scene, folder: Path, options: Sequence[str]) -> Answer:
    document = asked("check", *files(scene, folder, "--inventory"), *options)
    findings = [
        finding
        for finding in document["findings"]
        if finding["object"] in (scene.id, f"{scene.object['kind']}/{scene.name}")
    ]
    refused = any(finding["severity"] == "error" and finding["code"] not in ACCEPTED for finding in findings)
    return Answer(refused=refused, codes=frozenset(finding["code"] for finding in findings), said=json.dumps(findings))


def survey(scene: Scene, folder: Path, options: Sequence[str]) -> Answer:
    document = asked("survey", *files(scene, folder), *options)
    for workload in document["workloads"]:
        if (workload["kind"], workload["namespace"], workload["name"]) == (
            scene.object["kind"],
            scene.namespace,
            scene.name,
        ):
            refusals = [key["detail"] for key in workload["keys"] if outcome_in(key) == "refused"]
            return answer_from_decisions(workload["keys"], refusals)._replace(
                outcome=workload["outcome"] or SILENT, mode=document["modes"].get(scene.namespace, "enforce")
            )
    queue_findings = [
        finding for finding in document["obstacles"] if (finding["code"], finding["object"]) == ("S020", scene.id)
    ]
    matches = [CONTAINER_AND_KEY.match(finding["message"]) for finding in queue_findings]
    return answer_from_decisions(
        [{"container": match[1], "key": match[2], "outcome": "left"} for match in matches if match]
    )


def answer_from_simulation(pods: Sequence[Mapping[str, Any]], scene: Scene) -> Answer:
    """Return the answer about the scene's object, from all simulated pods of a command."""
    pods_of_object = [pod for pod in pods if pod["pod"].startswith(f"{scene.namespace}/{scene.name}")]
    for pod in pods_of_object:
        said = pod["reason"]["text"]
        if said.startswith("refused: "):
            return Answer(refused=True, codes=frozenset((pod["reason"]["code"], *CODE.findall(said))), said=said)
    if not pods_of_object:
        return Answer()
    fits = {pod["node"] is not None for pod in pods_of_object}  # pods of one workload may compete for a node
    # A template without replicas has no simulated pod, but translate judges it. False leaves `fits` open if all pods fit.
    fits |= {False for created in created_pods(scene.object) if not created.replicas}
    return Answer(
        refused=False,
        fits=fits.pop() if len(fits) == 1 else None,
        devices=sum(len(pod["devices"]) for pod in pods_of_object),
        said=pods_of_object[0]["reason"]["text"],
    )


def simulate(scene: Scene, folder: Path, options: Sequence[str]) -> Answer:
    return answer_from_simulation(asked("simulate", *files(scene, folder), *options)["pods"], scene)


def explain(scene: Scene, folder: Path, options: Sequence[str]) -> Answer:
    name = f"{scene.object['kind'].lower()}/{scene.name}"
    document = asked("explain", name, "-n", scene.namespace, *files(scene, folder), *options)
    pods = [document["pod"]] if "pod" in document else []
    pods += [pod["first"] for pod in document.get("workload", {}).get("pods") or ()]
    verdicts = [document["workload"]["webhook"]] if "workload" in document else [pod["webhook"] for pod in pods]
    predictions = [verdict for verdict in verdicts if verdict["predicted"]]  # the others are records of past decisions
    refusals = [
        f"{refusal['message']} ({refusal['remedy']}) [{refusal['code']}]"
        for prediction in predictions
        for refusal in prediction["refusals"]
    ]
    text = " ".join(pod["state"]["reasons"][0]["text"] for pod in pods)
    decisions = [decision for prediction in predictions for decision in prediction["decisions"]]
    answer = answer_from_decisions(
        decisions, refusals, requests_devices="it has no claims" not in text or "no claim replaces" in text
    )
    if not pods or refusals:
        return answer
    fits = [fits_according_to(pod["state"]["reasons"][0]["text"], pod.get("prospect")) for pod in pods]
    return answer._replace(fits=fits[0] if len(set(fits)) == 1 else None, said=text)


def fits_according_to(message: str, prospect: Mapping[str, Any] | None) -> bool | None:
    """Return whether a pod fits, according to the message and prospect of `explain`."""
    if ROOM.search(message):
        return True
    if NO_ROOM.search(message):
        return False
    # The outlook of a prospect considers only the claims.
    return False if prospect and prospect["outlook"] in ("full", "never") else None


def resize(scene: Scene, folder: Path, options: Sequence[str]) -> Answer:
    """Run `resize` with the amount that the object already requests."""
    requests = set(re.findall(r'"([^"/]+/[^"]+)": ("[^"]*"|[^",}]+)', json.dumps(scene.object.get("spec", {}))))
    if len(requests) != 1 or "--kubernetes" in options:
        return Answer()
    [(key, amount_text)] = requests
    name, amount = f"{scene.object['kind'].lower()}/{scene.name}", f"{key}=" + amount_text.strip('"')
    document = asked("resize", name, amount, "-n", scene.namespace, *files(scene, folder), *options)
    return answer_from_simulation(document["pods"], scene)._replace(codes=frozenset())


def demo(scene: Scene, folder: Path, options: Sequence[str]) -> Answer:
    """Read the output of `demo`, which has a block for each pod. The demo has no controller that creates templates for a ComputeDomain.

    Only a placed pod is compared with other commands, because the demo also adds the pods that hold devices in the scene.
    """
    if any(obj["kind"] == "ComputeDomain" for obj in scene.surroundings):
        return Answer()
    if not scene.fleet or scene.object["kind"] != "Pod" or "--kubernetes" in options or is_unfilled(scene):
        return Answer()
    result = run("demo", "-f", folder / "scene.json", "--inventory", folder / "fleet.json", *options, "--once")
    _, mark, block = re.split(rf"^(\S) {scene.name}", result.stdout, maxsplit=1, flags=re.MULTILINE)
    row = re.search(r"^    (claims|outcome) +(\S+)", block, re.MULTILINE) if "    requests " in block else None
    outcome = "refused" if mark == "✗" else row and ("translated" if row[1] == "claims" else row[2])
    codes = CODE.findall(block.partition("because")[2]) if mark == "✗" else ()
    fits = True if mark == "✓" else None
    return Answer(outcome=outcome, refused=mark == "✗", codes=frozenset(codes), fits=fits, said=block)


def dashboard(scene: Scene, folder: Path, options: Sequence[str]) -> Answer:
    """Place the object with the dashboard's what-if."""
    if is_configured(scene) or not brings_pods(scene.object):
        return Answer()
    answer = what_if(reading_of_server(scene), WhatIfQuestion(json.dumps(scene.object)), lambda: False)
    return answer_from_simulation(msgspec.to_builtins(answer.pods), scene)


def webhook(scene: Scene, folder: Path, options: Sequence[str]) -> Answer:
    """Send a pod to both webhooks, as the API server does after decoding it."""
    if is_configured(scene) or scene.object["kind"] != "Pod" or is_unfilled(scene):
        return Answer()
    state = reading_of_server(scene).state
    pod, messages, refused = json.loads(json.dumps(scene.object)), [], False
    for path in ("mutate", "validate"):
        response = json.loads(decide_review(path, as_review(pod, scene), state).body)["response"]
        refused = refused or not response["allowed"]
        messages += [response.get("status", {}).get("message", "")] if refused else response.get("warnings", [])
        if refused:
            break  # after a refusal, an API server calls no further webhook
        if "patch" in response:
            pod = jsonpatch.apply_patch(pod, json.loads(base64.b64decode(response["patch"])))
    record = json.loads(pod["metadata"].get("annotations", {}).get(DECISION, "{}"))
    moved = answer_from_decisions(record.get("decisions", ())).moved
    codes = CODE.findall(" ".join(messages)) if refused else ()
    return Answer(refused=refused, codes=frozenset(codes), moved=None if refused else moved, said=" ".join(messages))


def explained_pods(scene: Scene, folder: Path, options: Sequence[str]) -> Answer:
    """Read what `explain` says about the first pod of each template of a workload."""
    if scene.object["kind"] == "Pod":
        return Answer()
    name = f"{scene.object['kind'].lower()}/{scene.name}"
    document = asked("explain", name, "-n", scene.namespace, *files(scene, folder), *options)
    pods = [pod["first"]["webhook"] for pod in document.get("workload", {}).get("pods") or ()]
    decisions = [decision for verdict in pods if verdict["predicted"] for decision in verdict["decisions"]]
    moved = answer_from_decisions(decisions).moved
    return Answer(moved=moved if decisions else None)


def as_review(pod: Object, scene: Scene) -> bytes:
    resource = {"group": "", "version": "v1"}
    request = {"uid": "u", "operation": "CREATE", "namespace": scene.namespace, "object": pod}
    request |= {"kind": resource | {"kind": "Pod"}, "resource": resource | {"resource": "pods"}}
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


def is_configured(scene: Scene) -> bool:
    """Return whether the configuration is among the objects of a scene. Only commands read it there; servers do not."""
    return any(obj["kind"] in ("DrawbridgeConfiguration", "ConfigMap") for obj in scene.surroundings)


def is_unfilled(scene: Scene) -> bool:
    """Return whether an object has a placeholder. Commands that read files report it; the API server cannot decode such an object."""
    return "${" in json.dumps(scene.object)


def reading_of_server(scene: Scene) -> Reading:
    """Return what a server in a scene has read: all objects except the object in question."""
    configuration = read_configuration(scene.configuration)[0] if scene.configuration else Configuration()
    assert configuration
    features = features_of(server_named(f"1.{scene.minor}" if scene.minor else "", ""), configuration)
    objects = (*scene.surroundings, *scene.fleet)
    return reading_of(objects, features, in_force=ConfigurationInForce(configuration))


def report(scene: Scene, folder: Path, options: Sequence[str]) -> Answer:
    """Read the report of `translate`, whose last line counts outcomes."""
    result = run(
        "translate", "-f", folder / "object.json", "--inventory", folder / "others.json", *options, "-o", "report"
    )
    # An object that counts keys keeps them.
    match = re.search(r"1 (\w+), 0 without", result.stdout.replace("1 counting keys,", "1 left,"))
    return Answer(outcome=match[1] if match else SILENT, refused=result.exit_code == 1)


def sarif(scene: Scene, folder: Path, options: Sequence[str]) -> Answer:
    """Read the SARIF output of `check`."""
    [sarif_run] = json.loads(run("check", *files(scene, folder, "--inventory"), *options, "-o", "sarif").stdout)["runs"]
    named_results = [
        (result["locations"][0]["logicalLocations"][0]["fullyQualifiedName"], result) for result in sarif_run["results"]
    ]
    results = [
        result for name, result in named_results if name.startswith((scene.id, f"{scene.object['kind']}/{scene.name}/"))
    ]
    refused = any(result["level"] == "error" for result in results)
    return Answer(refused=refused, codes=frozenset(result["ruleId"] for result in results))


COMMANDS: Sequence[Callable[[Scene, Path, Sequence[str]], Answer]] = (
    translate,
    check,
    survey,
    simulate,
    explain,
    resize,
)


# Servers, and other output formats of the commands. Each random case runs one of them.
OTHERS = (webhook, dashboard, report, sarif, demo)
# Only `tests.ask_files` runs these.
OF_PODS = (explained_pods,)


def asked(*args: Any) -> Any:
    """Run a command with `-o json`; return its output."""
    result = run(*args, "-o", "json")
    assert result.exit_code in (0, 1, 2), result.output  # anything else is a crash
    return json.loads(result.stdout)


def files(scene: Scene, folder: Path, fleet_option: str = "-f") -> list[Any]:
    """Return the options that name the files of a scene."""
    return ["-f", folder / "scene.json", *([fleet_option, folder / "fleet.json"] if scene.fleet else [])]


def as_list(objects: Iterable[Object]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}, default=str)


# ---- Running the commands


def ask(scene: Scene, folder: Path, commands: Iterable[Callable[..., Answer]] = COMMANDS) -> dict[str, Answer]:
    """Run commands on the object of a scene; return their answers by name."""
    # The object comes first. The order of the other objects does not matter.
    (folder / "scene.json").write_text(as_list([scene.object, *scene.surroundings]))
    (folder / "fleet.json").write_text(as_list(scene.fleet))
    (folder / "object.json").write_text(as_list([scene.object]))
    (folder / "others.json").write_text(as_list([*scene.surroundings, *scene.fleet]))
    options = ["--kubernetes", f"1.{scene.minor}"] if scene.minor else []
    if scene.configuration is not None:
        (folder / "configuration.yaml").write_text(manifests.dump([scene.configuration]))
        options += ["--config", str(folder / "configuration.yaml")]
    answers = {command.__name__: command(scene, folder, options) for command in commands}
    gc.unfreeze()  # commands freeze their objects (gc.freeze), because their process ends soon; this process continues
    return answers
