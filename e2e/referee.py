"""Folders before a real API server: what `drawbridge check` calls an error, beside what the server refuses in a dry run.

python -m e2e.referee FOLDER...

Only kinds that the server serves count; a namespace that an object names is made first. Pods that a webhook would refuse are no
errors here: the server has none.
"""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

from analysis.files import manifests_among
from cluster.manifests import Document, read_leniently
from e2e.actors.client import ApiError, Object
from e2e.build import CURRENT
from e2e.ground.controlplane import ControlPlane

DRAWBRIDGE = (sys.executable, "-m", "cli.main")
ROOT = Path(__file__).parents[1]


def errors(folder: Path) -> dict[tuple[str, int], str]:
    """What `check` calls an error, by file and line; 0 is the whole file."""
    done = subprocess.run(
        [*DRAWBRIDGE, "check", ".", "-o", "json", "--kubernetes", CURRENT],
        cwd=folder, capture_output=True, text=True, timeout=300, check=False, env={"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    if done.returncode not in (0, 1, 2):
        raise RuntimeError(done.stderr[-2_000:])
    answer = json.loads(done.stdout)
    found = {
        (one["place"]["file"], one["place"]["line"]): f"{one['code']} {one['message']}"
        for one in answer["findings"]
        if one["severity"] == "error"
    }
    return found | {(one["file"], one.get("line") or 0): one["message"] for one in answer.get("errors", ())}


def refusal(server: ControlPlane, value: Object) -> str | None:
    """What the server says against an object, in a dry run; None of a kind that it does not serve."""
    metadata = value.get("metadata")
    plain = metadata if isinstance(metadata, dict) else {}
    try:
        path = server.path_of({**value, "metadata": plain}, collection=True)
    except (KeyError, TypeError, ApiError):
        return None
    try:
        server.post(path, value, dryRun="All")
    except ApiError as error:
        # A dry run of a second kubectl would find the namespace that the first made.
        if error.code == 404 and error.message.startswith("namespaces "):
            try:
                server.namespace(str(plain["namespace"]))
            except ApiError as wrong:  # a name that no namespace can have
                return wrong.message
            return refusal(server, value)
        return "" if error.code == 409 else error.message
    return ""


def judge(server: ControlPlane, folder: Path) -> tuple[Counter[str], list[str]]:
    """Count the documents of a folder by what both say of them, and name those on which they differ."""
    ours = errors(folder)
    documents, others = read_leniently([str(folder)])
    judged, _ = manifests_among(documents, others)
    counts: Counter[str] = Counter(
        files=len({document.file for document in documents}), documents=len(documents), judged=len(judged)
    )
    counts["unread"] = sum(not other.instead for other in others)
    differences = []
    for document in judged:
        theirs = refusal(server, document.object)
        if theirs is None:
            counts["not served"] += 1
            continue
        mine = of(document, ours, folder)
        counts["both" if mine and theirs else "only ours" if mine else "only theirs" if theirs else "neither"] += 1
        if bool(mine) != bool(theirs):
            kind = document.object.get("kind")
            differences.append(f"{document.file}:{document.first_line} {kind}\n  ours:   {mine}\n  theirs: {theirs}")
    return counts, differences


def of(document: Document, found: dict[tuple[str, int], str], folder: Path) -> str:
    file = str(Path(document.file).relative_to(folder))
    first, last = document.first_line, document.first_line + max(document.line_count, 1)
    return next((text for (name, line), text in found.items() if name == file and first <= line < last), "")


def main(folders: list[str]) -> None:
    with ControlPlane(name="referee") as server:
        for name in folders:
            counts, differences = judge(server, Path(name).resolve())
            print(name, json.dumps(counts), *differences, sep="\n", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
