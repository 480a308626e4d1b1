"""Runs all commands on the objects in folders of manifests, and prints every contradiction: python -m tests.ask_files FOLDER...

A question has one object that is a claim or creates pods, one fleet and one configuration. The commands get the object in several forms
that mean the same (`tests/forms.py`). The commands also get the objects of the same
folder that create no pods, such as namespaces, classes and quotas, and the objects of the fleet that are not in the folder. If a server
has stored the object, this tool first removes the fields that the server added, because `survey` removes them, too. Files that cannot be
read are skipped and counted.

The exit status is 1 if two commands contradict each other or a command fails.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

from analysis.arrivals import brings_pods
from cluster import manifests
from tests import agreement
from tests.agreement import COMMANDS, FLEET_KINDS, OF_PODS, OTHERS, Answer, Object, Scene, ask
from tests.contradictions import contradictions
from tests.forms import differing_forms, forms

ENDINGS = (".yaml", ".yml", ".json")
CLAIM_KINDS = ("ResourceClaim", "ResourceClaimTemplate")
# The other commands judge the claims of pods only.
COMMANDS_ABOUT_CLAIMS = (agreement.translate, agreement.check, agreement.simulate, agreement.sarif, agreement.report)
WRITTEN_BY_SERVER = ("uid", "resourceVersion", "ownerReferences", "managedFields", "generation", "selfLink")
MAX_SHOWN = 240  # characters of an answer


class Question(NamedTuple):
    """A scene, and its title in messages. A question without an object, such as each of `all_surroundings`, has {} as the object."""

    scene: Scene
    title: str


def identity(obj: Object) -> tuple[str, ...]:
    metadata = obj["metadata"]
    return tuple(str(part) for part in (obj["kind"], metadata.get("namespace", "default"), metadata.get("name")))


def read_objects(path: Path) -> list[Object] | None:
    """Return the objects of a file, or None if a part of it cannot be read."""
    documents, problems = manifests.read_leniently([path])
    objects = [document.object for document in documents]
    broken_objects = [
        obj for obj in objects if not isinstance(obj.get("metadata", {}), dict) or not obj.get("apiVersion")
    ]
    return None if problems or broken_objects else [obj | {"metadata": obj.get("metadata", {})} for obj in objects]


def as_written(obj: Object) -> Object:
    """Return an object without the fields that a server has added."""
    if not {"uid", "ownerReferences"} & set(obj["metadata"]):
        return obj
    metadata = {name: value for name, value in obj["metadata"].items() if name not in WRITTEN_BY_SERVER}
    spec = {name: value for name, value in obj.get("spec", {}).items() if (obj["kind"], name) != ("Pod", "nodeName")}
    return {name: value for name, value in obj.items() if name != "status"} | {"metadata": metadata, "spec": spec}


def objects_of(path: Path | None) -> list[Object]:
    return [document.object for document in manifests.read([path])] if path else []


def questions_about(folder: Path, all_surroundings: Sequence[Question]) -> tuple[list[list[Question]], int]:
    """Return the questions about each object in the files of a folder, and the number of skipped files."""
    files = [path for path in sorted(folder.iterdir()) if path.suffix in ENDINGS and path.is_file()]
    contents = {path: read_objects(path) for path in files}
    objects = [
        (obj, path) for path, objects_of_file in contents.items() for obj in objects_of_file or () if "kind" in obj
    ]
    objects_without_pods = {
        identity(obj): obj for obj, _ in objects if not brings_pods(obj)
    }  # of several objects with one name, the last counts
    objects_in_question = [(obj, path) for obj, path in objects if brings_pods(obj) or obj["kind"] in CLAIM_KINDS]
    questions = [
        [question_about(obj, path, objects_without_pods, surroundings) for surroundings in all_surroundings]
        for obj, path in objects_in_question
    ]
    return questions, sum(objects_of_file is None for objects_of_file in contents.values())


def question_about(
    obj: Object, path: Path, objects_without_pods: dict[tuple[str, ...], Object], surroundings: Question
) -> Question:
    other_objects = [other_object for key, other_object in objects_without_pods.items() if key != identity(obj)]
    objects_beside_fleet = [other_object for other_object in other_objects if other_object["kind"] not in FLEET_KINDS]
    fleet = [other_object for other_object in other_objects if other_object["kind"] in FLEET_KINDS]
    fleet += [
        other_object for other_object in surroundings.scene.fleet if identity(other_object) not in objects_without_pods
    ]
    name = f"{obj['metadata'].get('generateName', 'unnamed-')}x"  # demo and the commands that find an object by its name need a name
    object_as_written = as_written(obj)
    object_with_name = object_as_written | {"metadata": {"name": name} | object_as_written["metadata"]}
    scene = surroundings.scene._replace(object=object_with_name, surroundings=objects_beside_fleet, fleet=fleet)
    scene = scene._replace(configuration=None) if agreement.is_configured(scene) else scene
    return Question(scene, f"{path}: {scene.id}{surroundings.title}")


def contradictions_of(questions: Sequence[Question]) -> list[str]:
    return [line for question in questions for line in ask_all(question)]


def ask_all(question: Question) -> Iterator[str]:
    """Run every command on an object; yield each contradiction and each failure."""
    answers: dict[str, Answer] = {}
    yield from ask_commands(question, answers)
    for name, scene in forms(question.scene):
        form, answers_about_form = Question(scene, f"{question.title} ({name})"), dict[str, Answer]()
        yield from ask_commands(form, answers_about_form)
        for difference in differing_forms(answers, answers_about_form):
            yield f"{form.title}: {difference}"
    if {"translate", "simulate"} <= set(answers):
        for contradiction in sorted(contradictions(answers)):
            yield "\n".join(
                (
                    f"{question.title}: {contradiction.kind} {contradiction.key}".rstrip(),
                    *lines_of_answers(answers, contradiction.kind),
                )
            )


def ask_commands(question: Question, answers: dict[str, Answer]) -> Iterator[str]:
    """Add the answer of every command to `answers`; yield each failure."""
    of_pods = (*COMMANDS, *OTHERS, *OF_PODS)
    for command in COMMANDS_ABOUT_CLAIMS if question.scene.object["kind"] in CLAIM_KINDS else of_pods:
        try:
            with tempfile.TemporaryDirectory() as folder:
                answers |= ask(question.scene, Path(folder), [command])
        except Exception as error:  # noqa: BLE001 - a command that fails is reported like a contradiction
            yield f"{question.title}: {command.__name__} fails: {type(error).__name__}: {error}"[: 4 * MAX_SHOWN]


def lines_of_answers(answers: dict[str, Answer], kind: str) -> Iterator[str]:
    """Yield a line for the answer of translate, and a line for the answer of each command that a contradiction names."""
    for name in sorted(set(kind.replace(",", " ").split()) & set(answers) | {"translate"}):
        answer = answers[name]
        codes = " ".join(sorted(answer.codes))
        yield f"    {name}: {answer.outcome} fits={answer.fits} [{codes}] {answer.said}"[:MAX_SHOWN]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument("--fleet", action="append", type=Path, help="file or folder with nodes, slices and classes")
    parser.add_argument(
        "--config",
        action="append",
        type=Path,
        help="file with a configuration; an empty file stands for no configuration",
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    options = parser.parse_args(arguments)
    all_surroundings = [
        Question(
            Scene({}, (), objects_of(fleet), next(iter(objects_of(config)), None)),
            "".join(f" ({path.name})" for path in (fleet, config) if path),
        )
        for fleet in options.fleet or [None]
        for config in options.config or [None]
    ]
    folders = {path for folder in options.folders for path in (folder, *folder.rglob("*")) if path.is_dir()}
    by_folder = [questions_about(folder, all_surroundings) for folder in sorted(folders)]
    questions_by_object = [questions for questions_of_folder, _ in by_folder for questions in questions_of_folder]
    count = 0
    with ProcessPoolExecutor(options.jobs) as pool:
        for number, lines in enumerate(
            (pool.map if options.jobs > 1 else map)(contradictions_of, questions_by_object), 1
        ):
            count += len(lines)
            print(*lines, sep="\n", end="\n" * bool(lines), flush=True)
            if number % 50 == 0:
                print(
                    f"{number} of {len(questions_by_object)} objects, {count} contradictions",
                    file=sys.stderr,
                    flush=True,
                )
    skipped = sum(skipped_files for _, skipped_files in by_folder)
    question_count = len(questions_by_object) * len(all_surroundings)
    print(
        f"{len(questions_by_object)} objects, {question_count} questions, {count} contradictions, {skipped} files skipped"
    )
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main())
