"""`drawbridge demo`: pushes real-world pods through the real webhook, and shows the result for each."""

from __future__ import annotations

import asyncio
import shlex
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cli import options
from cli.command import declare
from cli.exits import Exit
from cli.files import FLEET_KINDS, InputFiles, read_input_files, refuse_without_fleet
from cli.output import colours, print_lines, program_name, width
from dra.texts import count_of

if TYPE_CHECKING:
    from cli.playground import Playground
    from cluster.manifests import Document

EXAMPLES = Path(__file__).resolve().parents[2] / "manifests" / "examples"
DECISION_SECONDS = 10.0
IGNORED = "ignored: the store does not know this kind or cannot read the object"
_BUILT = "whose pods are built by controllers that the demo does not run (`translate -o report` lists their keys)"


@declare("demo", examples=("drawbridge demo --once", "drawbridge demo -f pod.yaml --once"))
@options.files(help="Your own pods instead of the examples. May be repeated.")
@options.inventory("Default: the example fleet. ")
@options.config()
@options.option("--once", "Exit at the end, also on a terminal.")
def command(
    *,
    files: InputFiles,
    config: str,
    once: bool,
) -> Exit:
    """Send example legacy pods through the webhook, on the embedded store.

    Only the API server is simulated: the webhook answers over HTTPS, the controller creates the templates, the
    allocator chooses the devices. Exit code 1: a pod of -f is refused or waits.
    """
    from webhook.service import log

    log.configure("warning")
    documents = read_input_files(files or InputFiles((str(EXAMPLES / "pods"),)))
    inventory = read_fleet(files.inventory)
    on_terminal = sys.stdout.isatty() and sys.stdin.isatty()
    stay = on_terminal and not once
    all_run = asyncio.run(_demo(documents, inventory, config, files, stay=stay))
    return Exit.FINE if all_run or not files else Exit.REFUSED


async def _demo(
    documents: list[Document], inventory: list[Document], config: str, files: InputFiles, *, stay: bool
) -> bool:
    """Create the pods of the documents, and print what becomes of each. Return whether none is refused or waits."""
    from analysis.arrivals import brings_pods
    from analysis.configuration import KIND
    from analysis.loading import GeneratedNames
    from cli import story
    from cli.applied import find_controlled
    from cli.configuration import watched_configuration
    from cli.playground import PodsListener, add_all, end_of, playground, pods_of
    from dashboard import Dashboard, ReadingSource
    from dra.texts import joined
    from serving.process import stopping
    from webhook.translate import kind_of

    started = time.monotonic()
    source, in_force = watched_configuration(config, documents, inventory)
    objects = [document.object for document in inventory if document.object.get("kind") != KIND]
    async with playground(objects, source) as demo:
        devices: Counter[str] = Counter()
        for obj in objects:
            if obj.get("kind") == "ResourceSlice":
                spec = obj.get("spec") or {}
                devices[str(spec.get("driver"))] += len(spec.get("devices") or ())
        listed = ", ".join(f"{number} of {driver}" for driver, number in devices.items()) or "no devices"
        nodes = count_of(sum(obj.get("kind") == "Node" for obj in objects), "node")
        print_lines(
            [
                f"fleet: {nodes}; {listed}",
                f"configuration: {in_force.source}; mode {source.current.file.mode}",
                f"webhook: {demo.url}/mutate, on loopback over an embedded store",
                "",
            ]
        )
        controlled = find_controlled(documents)
        shown = [
            document
            for n, document in enumerate(documents)
            if n not in controlled and document.object.get("kind") != KIND
        ]
        # Add objects that are not pods first, whatever the order of the files: pods may depend on them, for example on the mode of a namespace.
        others = [document.object for document in shown if not brings_pods(document.object)]
        ignored = add_all(demo.cluster, others)
        outcomes = []
        names = GeneratedNames()
        # One pod after the other, so that the order decides which pod gets the last device.
        for document in shown:
            if brings_pods(document.object):
                comment = _comment(document.file)
                for pod, part in pods_of(document.object, names):
                    shows = joined(part, comment)
                    outcomes.append(await end_of(demo, pod, DECISION_SECONDS, shows=shows))
        print_lines(story.lines(outcomes, width=width(), colour=colours()), styled=True)
        print_lines([story.total(outcomes, time.monotonic() - started)])
        print_lines(count_by_kind([obj for obj in others if obj not in ignored], "added to the store"))
        print_lines(count_by_kind([obj for obj in ignored if kind_of(obj)], _BUILT))
        print_lines(count_by_kind([*demo.ignored, *(obj for obj in ignored if not kind_of(obj))], IGNORED))
        all_run = all(outcome.end not in (story.End.REFUSED, story.End.WAITS) for outcome in outcomes)
        if not stay:
            _print_next_steps(demo, "", "", files)
            return all_run
        pictures = ReadingSource.of_cluster(demo.cluster, "the store of drawbridge demo", in_force)
        async with PodsListener(demo).open() as url, Dashboard(pictures, fresh=1.0).open("127.0.0.1", 0) as pages:
            _print_next_steps(demo, url, pages, files)
            await stopping().wait()
        return all_run


def read_fleet(paths: tuple[str, ...]) -> list[Document]:
    """Read the files of `--inventory`, else the example fleet."""
    documents = read_input_files(InputFiles(paths or (str(EXAMPLES / "fleet"),)))
    refuse_without_fleet([document.object for document in documents], FLEET_KINDS)
    return documents


def _comment(file: str) -> str:
    """Return the comment in the first line of a file."""
    first = ""
    with suppress(OSError), Path(file).open(encoding="utf-8") as opened:
        first = opened.readline()
    return first.removeprefix("#").strip() if first.startswith("#") else ""


def count_by_kind(objects: list[dict[str, Any]], participle: str) -> list[str]:
    """Return a line with the number of objects by kind, or none without objects."""
    if not objects:
        return []
    kinds = Counter(str(obj.get("kind") or "without a kind") for obj in objects)
    listed = ", ".join(f"{number} {kind}" for kind, number in kinds.items())
    return [f"{count_of(len(objects), 'object')} {participle}: {listed}"]


def _print_next_steps(demo: Playground, url: str, pages: str, files: InputFiles) -> None:
    program = program_name()
    user_file = next((path for path in files.paths if path != "-"), "pod.yaml")
    posted = shlex.quote(user_file) if Path(user_file).is_file() else "pod.yaml"
    user_file = shlex.quote(user_file)
    examples = EXAMPLES.relative_to(Path.cwd()) if EXAMPLES.is_relative_to(Path.cwd()) else EXAMPLES
    shown = [
        f"  {program} dashboard -f {examples / 'fleet'} -f {examples / 'pods'} --open",
        "      the example fleet in a browser: holders of devices, waiting pods, what-if questions",
    ]
    if pages:
        shown = [
            f"  {pages}",
            "      this fleet in a browser: holders of devices, waiting pods, what-if questions",
        ]
    fleet = [shlex.quote(path) for path in files.inventory] or [str(examples / "fleet")]
    own = [f"  {program} demo -f {user_file}", "      your own pods through the webhook, on this fleet"]
    if files:
        own = []
    lines = [
        "",
        "next:",
        f"  {program} translate -f {user_file} {' '.join(f'--inventory {path}' for path in fleet)} -o diff",
        "      the decisions about your own files, without a cluster",
        *own,
        *shown,
        f"  {program} manifests --image REGISTRY/drawbridge:TAG | kubectl apply -f -",
        "      install drawbridge in a cluster, in observe mode, which changes no pods",
    ]
    if url:
        lines += [
            f"  curl --data-binary @{posted} {url}/pods",
            f"  curl {demo.metrics_url}",
            "",
            "The webhook runs until Ctrl-C.",
        ]
    print_lines(lines)
