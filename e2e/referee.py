"""Compares two judgements of the objects in folders: the errors of `drawbridge check`, and a real API server's refusals in dry runs.

python -m e2e.referee FOLDER...

Kinds that the server does not serve are skipped. Missing namespaces are created before their objects. The server calls no webhooks.
"""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

from cli.files import manifests_among
from cluster.manifests import Document, read_leniently
from dra.codes import ACCEPTED
from e2e.actors.client import ApiError, Object
from e2e.build import CURRENT
from e2e.ground.controlplane import ControlPlane

DRAWBRIDGE = (sys.executable, "-m", "cli.main")
ROOT = Path(__file__).parents[1]


def errors(folder: Path) -> dict[tuple[str, int], str]:
    """Return the errors of `drawbridge check` by file and line; line 0 stands for the whole file."""
    done = subprocess.run(
        [*DRAWBRIDGE, "check", ".", "-o", "json", "--kubernetes", CURRENT],
        cwd=folder, capture_output=True, text=True, timeout=300, check=False, env={"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    if done.returncode not in (0, 1, 2):
        raise RuntimeError(done.stderr[-2_000:])
    answer = json.loads(done.stdout)
    reported = {
        (finding["place"]["file"], finding["place"]["line"]): f"{finding['code']} {finding['message']}"
        for finding in answer["findings"]
        if finding["severity"] == "error" and finding["code"] not in ACCEPTED
    }
    return reported | {(error["file"], error.get("line") or 0): error["message"] for error in answer.get("errors", ())}


def refusal(server: ControlPlane, value: Object) -> str | None:
    """Return why the server refuses an object in a dry run: "" if it accepts the object, None if it does not serve the kind."""
    metadata = value.get("metadata")
    metadata_fields = metadata if isinstance(metadata, dict) else {}
    try:
        path = server.path_of({**value, "metadata": metadata_fields}, collection=True)
    except (KeyError, TypeError, ApiError):
        return None
    try:
        server.post(path, value, dryRun="All")
    except ApiError as error:
        # A user creates the namespace before its objects; a dry run does not.
        if error.code == 404 and error.message.startswith("namespaces "):
            try:
                server.namespace(str(metadata_fields["namespace"]))
            except ApiError as invalid_name:  # not a valid name of a namespace
                return invalid_name.message
            return refusal(server, value)
        return "" if error.code == 409 else error.message
    return ""


def judge(server: ControlPlane, folder: Path) -> tuple[Counter[str], list[str]]:
    """Count the documents of a folder by the two results, and describe each document on which the results differ."""
    errors_of_check = errors(folder)
    documents, unreadable = read_leniently([str(folder)])
    judged, _ = manifests_among(documents, unreadable)
    counts: Counter[str] = Counter(
        files=len({document.file for document in documents}), documents=len(documents), judged=len(judged)
    )
    counts["unread"] = sum(not other.apparent_kind for other in unreadable)
    differences = []
    for document in judged:
        refused = refusal(server, document.object)
        if refused is None:
            counts["not served"] += 1
            continue
        error = error_of(document, errors_of_check, folder)
        counts["both" if error and refused else "only ours" if error else "only theirs" if refused else "neither"] += 1
        if bool(error) != bool(refused):
            kind = document.object.get("kind")
            differences.append(f"{document.file}:{document.first_line} {kind}\n  ours:   {error}\n  theirs: {refused}")
    return counts, differences


def error_of(document: Document, errors: dict[tuple[str, int], str], folder: Path) -> str:
    file = str(Path(document.file).relative_to(folder))
    first, last = document.first_line, document.first_line + max(document.line_count, 1)
    return next((text for (name, line), text in errors.items() if name == file and first <= line < last), "")


def main(folders: list[str]) -> None:
    with ControlPlane(name="referee") as server:
        for name in folders:
            counts, differences = judge(server, Path(name).resolve())
            print(name, json.dumps(counts), *differences, sep="\n", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
