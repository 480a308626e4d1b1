"""Asks every command about the same object, and lists the answers that contradict each other.

`ask` returns one `Answer` for each command, in the words of docs/translation.md; `contradictions` compares them. Only the part
"Adapters" knows options, JSON fields and words of the commands.
"""

import base64
import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jsonpatch
import msgspec

from analysis.arrivals import brings_pods
from analysis.configuration import ConfigurationInForce, features_of, server_named
from analysis.loading import Reading, reading_of, state_of
from cluster import manifests
from dashboard.picture import DashboardView, draw_picture
from dashboard.whatif import WhatIfQuestion, what_if
from tests.cli.running import run
from webhook.admission import review
from webhook.names import DECISION
from webhook.state import Configuration
from webhook.state.configuration import read

Object = dict[str, Any]
Key = tuple[str, str]  # container ("" for the pod as a whole) and key

CLUSTER = ("Node", "ResourceSlice", "DeviceClass")
MOVING = {"translated", "approximated"}
SILENT = "silent"  # the command names no key of the object


class Answer(NamedTuple):
    """What a command says about one object. None: the command does not answer this question."""

    outcome: str | None = None
    keys: Mapping[Key, str] | None = None
    refused: bool | None = None
    codes: frozenset[str] = frozenset()
    withheld: frozenset[str] = frozenset()  # codes of what the mode holds back or the configuration only warns of
    fits: bool | None = None
    mode: str | None = None
    moved: frozenset[str] | None = None  # keys that are taken off the pod
    said: str = ""


class Contradiction(NamedTuple):
    """What two commands say about one question, and about which key."""

    kind: str
    key: str = ""


class Scene(NamedTuple):
    """One object, what is read beside it, the nodes and classes, and the options of every command."""

    object: Object
    around: Sequence[Object] = ()
    fleet: Sequence[Object] = ()
    configuration: Object | None = None
    minor: int = 0

    @property
    def name(self) -> str:
        return str(self.object["metadata"].get("name", ""))

    @property
    def namespace(self) -> str:
        return str(self.object["metadata"].get("namespace", "default"))

    @property
    def id(self) -> str:
        return f"{self.object['kind']}/{self.namespace}/{self.name or self.object['metadata'].get('generateName', '')}"


def requests_of(keys: Mapping[Key, str]) -> Mapping[Key, str]:
    """Leave out selectors and annotations that stay beside a request: not every command names them."""
    return {
        place: one
        for place, one in keys.items()
        if place[0] or place[1].startswith("/") or one not in ("left", "unknown")
    } or keys


def outcome_of(keys: Mapping[Key, str]) -> str:
    """Return the outcome of an object from those of its keys; a variable or a runtime class that is left beside a request does not count."""
    requests = {place: one for place, one in keys.items() if "/" in place[1] or one != "left"} or keys
    outcomes = set(requests.values())
    if "refused" in outcomes:
        return "refused"
    if outcomes & MOVING and outcomes - MOVING:
        return "partly"
    return next((one for one in ("approximated", "translated", "unknown", "left", "served") if one in outcomes), SILENT)


# ---- Adapters: all that is known of options, fields and words

COUNTED = re.compile(r"container (\S+): (\S+): ")  # what a queue counts, in the text of survey
CODE = re.compile(r"\[([RD]\d{3})\]")
# What `explain` says of a pod that a node has room for, and of one that none has.
ROOM = re.compile(
    r"devices for it are free(, and| on \d+ nodes)|device plugins have room|devices do not keep it|has room for it, and"
)
NO_ROOM = re.compile(r"no node could serve|no node has|but not where it may run|but pods before it")
SEVERITY = ("served", "translated", "approximated", "left", "unknown", "refused")


def word(of: Mapping[str, Any]) -> str:
    """Return the outcome of a key, which is one of the words of docs/translation.md in every command."""
    assert of["outcome"] in SEVERITY, of
    return str(of["outcome"])


def decided(decisions: Sequence[Mapping[str, Any]], refusals: Iterable[str] = (), said: Iterable[str] = ()) -> Answer:
    """Read decisions: those of translate and explain, and the keys of survey."""
    keys: dict[Key, str] = {}
    beside: set[Key] = set()  # selectors and annotations that stay beside a request
    for decision in decisions:
        place, outcome = (decision.get("container") or "", decision.get("key") or ""), word(decision)
        if place[1] and SEVERITY.index(outcome) >= SEVERITY.index(keys.get(place, outcome)):
            keys[place] = outcome
        if not (place[0] or decision.get("dialect") or place[1].startswith("/")) and outcome in ("left", "unknown"):
            beside.add(place)
    return Answer(
        outcome="refused"
        if refusals
        else outcome_of({place: of for place, of in keys.items() if place not in beside} or keys),
        keys=keys,
        refused=bool(refusals),
        codes=frozenset(
            {decision["code"] for decision in decisions if decision.get("code")}.union(*map(CODE.findall, refusals))
        ),
        withheld=frozenset(
            decision["code"] for decision in decisions if decision.get("code") and word(decision) != "refused"
        ),
        mode=next((decision["mode"] for decision in decisions if decision.get("mode")), "enforce"),
        moved=frozenset(key for (_, key), outcome in keys.items() if outcome in MOVING),
        said=" ".join((*refusals, *said, *(decision.get("detail") or "" for decision in decisions))),
    )


def translate(scene: Scene, folder: Path, options: Sequence[str]) -> Answer:
    document = asked("translate", *files(scene, folder, "--inventory"), *options)
    (folder / "translated.json").write_text(as_list(document["items"]))
    of = {name: [one for one in document[name] if one.startswith(scene.id)] for name in ("refusals", "warnings")}
    return decided([one for one in document["decisions"] if one["object"] == scene.id], of["refusals"], of["warnings"])


def check(scene: Scene, folder: Path, options: Sequence[str]) -> Answer:
    document = asked("check", *files(scene, folder, "--inventory"), *options)
    mine = [one for one in document["findings"] if one["object"] in (scene.id, f"{scene.object['kind']}/{scene.name}")]
    refused = any(one["severity"] == "error" for one in mine)
    return Answer(refused=refused, codes=frozenset(one["code"] for one in mine), said=json.dumps(mine))


def survey(scene: Scene, folder: Path, options: Sequence[str]) -> Answer:
    document = asked("survey", *files(scene, folder), *options)
    for one in document["workloads"]:
        if (one["kind"], one["namespace"], one["name"]) == (scene.object["kind"], scene.namespace, scene.name):
            refused = [key["detail"] for key in one["keys"] if word(key) == "refused"]
            return decided(one["keys"], refused)._replace(
                outcome=one["outcome"] or SILENT, mode=document["modes"].get(scene.namespace, "enforce")
            )
    counted = [one for one in document["obstacles"] if (one["code"], one["object"]) == ("S020", scene.id)]
    places = [COUNTED.match(one["message"]) for one in counted]
    return decided([{"container": place[1], "key": place[2], "outcome": "left"} for place in places if place])


def placed(pods: Sequence[Mapping[str, Any]], scene: Scene) -> Answer:
    """Read the outcomes of a simulation."""
    mine = [pod for pod in pods if pod["pod"].startswith(f"{scene.namespace}/{scene.name}")]
    for one in mine:
        if one["summary"].startswith("refused: "):
            return Answer(refused=True, codes=frozenset(CODE.findall(one["summary"])), said=one["summary"])
    if not mine:
        return Answer()
    fits = {one["node"] is not None for one in mine}  # pods of one workload may compete for a node
    return Answer(refused=False, fits=fits.pop() if len(fits) == 1 else None, said=mine[0]["summary"])


def simulate(scene: Scene, folder: Path, options: Sequence[str]) -> Answer:
    return placed(asked("simulate", *files(scene, folder), *options)["pods"], scene)


def explain(scene: Scene, folder: Path, options: Sequence[str]) -> Answer:
    name = f"{scene.object['kind'].lower()}/{scene.name}"
    document = asked("explain", name, "-n", scene.namespace, *files(scene, folder), *options)
    pods = [document["pod"]] if "pod" in document else []
    pods += [one["first"] for one in document.get("workload", {}).get("pods") or ()]
    gates = [document["workload"]["webhook"]] if "workload" in document else [pod["webhook"] for pod in pods]
    gates = [gate for gate in gates if gate["foretold"]]  # others are records of what became of the pod
    refusals = [text for gate in gates for text in gate["refusals"]]
    answer = decided([one for gate in gates for one in gate["decisions"]], refusals)
    if not pods or refusals:
        return answer
    fits = [fits_by(pod["standing"]["message"], pod.get("prospect")) for pod in pods]
    said = " ".join(pod["standing"]["message"] for pod in pods)
    return answer._replace(fits=fits[0] if len(set(fits)) == 1 else None, said=said)


def fits_by(message: str, prospect: Mapping[str, Any] | None) -> bool | None:
    """Read whether a pod fits from what `explain` says of it."""
    if ROOM.search(message):
        return True
    if NO_ROOM.search(message):
        return False
    # The outlook of a prospect is that of the claims alone.
    return False if prospect and prospect["outlook"] in ("full", "never") else None


def resize(scene: Scene, folder: Path, options: Sequence[str]) -> Answer:
    """Ask for the amount that is there."""
    asks = set(re.findall(r'"([^"/]+/[^"]+)": ("[^"]*"|[^",}]+)', json.dumps(scene.object["spec"])))
    if len(asks) != 1 or "--kubernetes" in options:
        return Answer()
    [(key, written)] = asks
    name, amount = f"{scene.object['kind'].lower()}/{scene.name}", f"{key}=" + written.strip('"')
    document = asked("resize", name, amount, "-n", scene.namespace, *files(scene, folder), *options)
    return placed(document["pods"], scene)._replace(codes=frozenset())


def demo(scene: Scene, folder: Path, options: Sequence[str]) -> Answer:
    """Read the page: one block a pod."""
    if not scene.fleet or scene.object["kind"] != "Pod" or "--kubernetes" in options or is_unfilled(scene):
        return Answer()
    result = run("demo", "-f", folder / "scene.json", "--fleet", folder / "fleet.json", *options, "--once")
    _, mark, block = re.split(rf"^(\S) {scene.name}", result.stdout, maxsplit=1, flags=re.MULTILINE)
    became = re.search(r"became   (\w+)", block)
    outcome = "refused" if mark == "✗" else became and {"claim": "translated"}.get(became[1], became[1])
    codes = CODE.findall(block.partition("because")[2]) if mark == "✗" else ()
    return Answer(outcome=outcome, refused=mark == "✗", codes=frozenset(codes), said=block)


def dashboard(scene: Scene, folder: Path, options: Sequence[str]) -> Answer:
    """Ask the dashboard what would become of the object."""
    if is_configured(scene) or not brings_pods(scene.object):
        return Answer()
    reading, configuration = seen(scene)
    view = DashboardView(reading, configuration, draw_picture(reading, read_at="", source=""))
    question = WhatIfQuestion(json.dumps(scene.object))
    return placed(msgspec.to_builtins(what_if(view, question, lambda: False).pods), scene)


def webhook(scene: Scene, folder: Path, options: Sequence[str]) -> Answer:
    """Send a pod through both webhooks, as an API server does that has decoded it."""
    if is_configured(scene) or scene.object["kind"] != "Pod" or is_unfilled(scene):
        return Answer()
    state = state_of(*seen(scene))
    pod, said, refused = json.loads(json.dumps(scene.object)), [], False
    for judge in (review.mutate, review.validate):
        response = json.loads(judge(as_review(pod, scene), state).body)["response"]
        refused = refused or not response["allowed"]
        said += [response.get("status", {}).get("message", "")] if refused else response.get("warnings", [])
        if "patch" in response:
            pod = jsonpatch.apply_patch(pod, json.loads(base64.b64decode(response["patch"])))
    record = json.loads(pod["metadata"].get("annotations", {}).get(DECISION, "{}"))
    moved = decided(record.get("decisions", ())).moved
    codes = CODE.findall(" ".join(said)) if refused else ()
    return Answer(refused=refused, codes=frozenset(codes), moved=None if refused else moved, said=" ".join(said))


def as_review(pod: Object, scene: Scene) -> bytes:
    resource = {"group": "", "version": "v1"}
    request = {"uid": "u", "operation": "CREATE", "namespace": scene.namespace, "object": pod}
    request |= {"kind": resource | {"kind": "Pod"}, "resource": resource | {"resource": "pods"}}
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


def is_configured(scene: Scene) -> bool:
    """Return whether the configuration is among the files of a scene, where only commands look for it."""
    return any(one["kind"] in ("DrawbridgeConfiguration", "ConfigMap") for one in scene.around)


def is_unfilled(scene: Scene) -> bool:
    """Return whether an object has a placeholder. Commands that read files name it, and no API server decodes such an object."""
    return "${" in json.dumps(scene.object)


def seen(scene: Scene) -> tuple[Reading, Configuration]:
    """Read what a server sees of a scene: all but the object."""
    configuration = read(scene.configuration)[0] if scene.configuration else Configuration()
    assert configuration
    features = features_of(server_named(f"1.{scene.minor}" if scene.minor else "", ""), configuration)
    objects = (*scene.around, *scene.fleet)
    return reading_of(objects, features, in_force=ConfigurationInForce(configuration)), configuration


def report(scene: Scene, folder: Path, options: Sequence[str]) -> Answer:
    """Read the form for people: the last line of a report counts outcomes."""
    result = run(
        "translate", "-f", folder / "object.json", "--inventory", folder / "others.json", *options, "-o", "report"
    )
    found = re.search(r"1 (\w+), 0 without", result.stdout)
    return Answer(outcome=found[1] if found else SILENT, refused=result.exit_code == 1)


def table(scene: Scene, folder: Path, options: Sequence[str]) -> Answer:
    """Read the form for spreadsheets: a row a key."""
    rows = csv.DictReader(run("survey", *files(scene, folder), *options, "-o", "csv").stdout.splitlines())
    mine = [row for row in rows if (row["kind"], row["name"]) == (scene.object["kind"], scene.name)]
    keys = [{**row, "outcome": row["keyOutcome"]} for row in mine]
    refused = [row["detail"] for row in keys if row["outcome"] == "refused"]
    return decided(keys, refused)._replace(outcome=mine[0]["outcome"] or SILENT if mine else SILENT)


def sarif(scene: Scene, folder: Path, options: Sequence[str]) -> Answer:
    """Read the form for code scanning."""
    [of] = json.loads(run("check", *files(scene, folder, "--inventory"), *options, "-o", "sarif").stdout)["runs"]
    places = [(one, one["locations"][0]["logicalLocations"][0]["fullyQualifiedName"]) for one in of["results"]]
    mine = [one for one, place in places if place.startswith((scene.id, f"{scene.object['kind']}/{scene.name}/"))]
    refused = any(one["level"] == "error" for one in mine)
    return Answer(refused=refused, codes=frozenset(one["ruleId"] for one in mine))


COMMANDS: Sequence[Callable[[Scene, Path, Sequence[str]], Answer]] = (
    translate,
    check,
    survey,
    simulate,
    explain,
    resize,
)
# The servers, and other forms of the commands: one of them is asked about each draw.
OTHERS = (webhook, dashboard, report, table, sarif, demo)


def asked(*args: Any) -> Any:
    """Run a command with -o json."""
    result = run(*args, "-o", "json")
    assert result.exit_code in (0, 1, 2), result.output  # anything else is a crash
    return json.loads(result.stdout)


def files(scene: Scene, folder: Path, fleet: str = "-f") -> list[Any]:
    """Return the options that name the files of a scene."""
    return ["-f", folder / "scene.json", *([fleet, folder / "fleet.json"] if scene.fleet else [])]


def as_list(objects: Iterable[Object]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}, default=str)


# ---- Asking and comparing


def ask(scene: Scene, folder: Path, commands: Iterable[Callable[..., Answer]] = COMMANDS) -> dict[str, Answer]:
    """Ask commands about the object of a scene."""
    # The object first: what stands around it counts wherever it stands.
    (folder / "scene.json").write_text(as_list([scene.object, *scene.around]))
    (folder / "fleet.json").write_text(as_list(scene.fleet))
    (folder / "object.json").write_text(as_list([scene.object]))
    (folder / "others.json").write_text(as_list([*scene.around, *scene.fleet]))
    options = ["--kubernetes", f"1.{scene.minor}"] if scene.minor else []
    if scene.configuration is not None:
        (folder / "configuration.yaml").write_text(manifests.dump([scene.configuration]))
        options += ["--config", str(folder / "configuration.yaml")]
    return {command.__name__: command(scene, folder, options) for command in commands}


def contradictions(answers: Mapping[str, Answer]) -> set[Contradiction]:
    """Compare each command with translate, and with simulate about what fits."""
    found: set[Contradiction] = set()
    for name, answer in answers.items():
        found.update(map(Contradiction, _differences(name, answer, answers["translate"], answers["simulate"])))
        if answer.keys is not None and answer.refused is answers["translate"].refused:
            found.update(_keys(name, answer, answers["translate"]))
    return found


# Codes by which a pod waits for a node.
WAITING = {"D212", "D221", "D222"}


def _differences(name: str, answer: Answer, right: Answer, simulated: Answer) -> Iterator[str]:
    if answer.fits and (waits := right.codes & WAITING):
        yield f"fits: {name} True, translate {min(waits)}"
    if answer.fits is not None and simulated.fits not in (None, answer.fits):
        yield f"fits: {name} {answer.fits}, simulate {simulated.fits}"
    if answer.refused is None or (name == "webhook" and "the API server refuses it" in right.said):
        return
    if answer.refused is not right.refused:
        # translate is asked about devices only: of an object that requests none it names no fault.
        if right.outcome != SILENT or any(code[0] == "R" for code in answer.codes):
            yield f"refused: {name} {answer.refused}, translate {right.refused}"
        return  # the rest follows from this
    moves = name == "demo" and right.outcome in ("approximated", "partly")  # demo prints the claims only
    if answer.outcome not in (None, "translated" if moves else right.outcome):
        yield f"outcome: {name} {answer.outcome}, translate {right.outcome}"
    if answer.keys and right.mode not in ("enforce", answer.mode):
        yield f"mode: {name} {answer.mode}, translate {right.mode}"
    # check has the codes of mistakes without a key, and of every fault of a refused object; simulate has the codes of refusals only,
    # and demo those of the first that refuses the pod.
    if answer.moved is not None and right.moved not in (None, answer.moved) and name == "webhook":
        yield f"moved: webhook {sorted(answer.moved)}, translate {sorted(right.moved or ())}"
    added, lost = answer.codes - right.codes, right.codes - answer.codes
    if name == "demo":
        lost = frozenset()
    if name in ("simulate", "dashboard", "webhook"):
        lost = {code for code in lost - right.withheld if code[0] == "R" and right.refused}
    if answer.keys is not None or name in ("check", "sarif", "simulate", "dashboard", "webhook", "demo"):
        yield from (f"codes: {name} without {code}" for code in lost)
        if name in ("check", "sarif"):
            added = {code for code in added if code[0] == "R" and not right.refused}
        yield from (f"codes: {name} adds {code}" for code in added)


def _keys(name: str, answer: Answer, right: Answer) -> Iterator[Contradiction]:
    given, wanted = requests_of(answer.keys or {}), requests_of(right.keys or {})
    question = "key of a refused object" if right.refused else "key"
    for place in {*given, *wanted}:
        said, by = given.get(place, "not named"), wanted.get(place, "not named")
        if said != by:
            yield Contradiction(f"{question}: {name} {said}, translate {by}", ":".join(place))
