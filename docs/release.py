"""Builds the files of a release twice, and compares them: `python -m docs.release FOLDER`. `--bump 0.2.0` changes the version instead.

All files are built from HEAD, with the time of its commit and in a fixed order, so the same Python builds the same bytes.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from webhook.names import VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parent.parent
NAMES = ROOT / "webhook" / "names.py"
# The version with the text before it, and the files in which commands or objects contain it.
VERSION_TEXT = re.compile(r"(drawbridge:|newTag: |tag: |tags/v|drawbridge-|tag `v)\d+\.\d+\.\d+(?!\d)")
FILES_WITH_VERSION = (
    "docs/versions.md",
    "docs/install.md",
    "docs/tutorial-admin.md",
    "cli/commands/manifests.py",
    "e2e/README.md",
)
# A kubectl plugin is a folder with a program. At its first call this program creates a virtual environment from packages with known hashes.
PLUGIN = """#!/bin/sh
set -eu
here=$(cd "$(dirname "$(readlink -f "$0")")" && pwd)
home=${XDG_CACHE_HOME:-$HOME/.cache}/kubectl-drawbridge/VERSION
if ! test -e "$home/ready"; then
  python=${PYTHON:-python3}
  "$python" -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "drawbridge needs Python 3.11 or newer: set PYTHON")'
  echo "drawbridge: installing its packages into $home" >&2
  "$python" -m venv --clear "$home"
  "$home/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r "$here/requirements.runtime.lock" >&2
  "$home/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps "$here"/*.whl >&2
  touch "$home/ready"
fi
exec "$home/bin/kubectl-drawbridge" "$@"
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m docs.release", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, help="the folder for the files; it must not exist")
    parser.add_argument("--bump", metavar="VERSION", help="change the version in every place, and date the changelog")
    parser.add_argument(
        "--downloads",
        default=f"{repository()}/releases/download",
        help="the address from which the files are downloaded",
    )
    options = parser.parse_args()
    if bool(options.bump) == bool(options.folder):
        parser.error("name a folder, or a version with --bump")
    if "/OWNER/" in options.downloads:
        print("pyproject.toml: project.urls.Repository has no owner: set it, and run `make generate`", file=sys.stderr)
    if options.bump:
        bump(ROOT, options.bump, datetime.now(UTC))
        return
    if options.folder.exists():
        parser.error(f"{options.folder} already exists: name a folder that does not exist")
    with tempfile.TemporaryDirectory() as scratch:
        first, second = (build(Path(scratch, name), options.downloads) for name in ("first", "second"))
    differ = [name for name in first if first[name] != second.get(name)]
    if differ or first.keys() != second.keys():
        sys.exit(f"two builds of one commit differ in: {', '.join(differ)}")
    options.folder.mkdir(parents=True)
    for name, content in first.items():
        (options.folder / name).write_bytes(content)
    print((options.folder / "SHA256SUMS").read_text(), end="")


def repository() -> str:
    """Return the address of the repository from `pyproject.toml`; other files are generated from it."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    address: str = declared["project"]["urls"]["Repository"]
    return address


def with_owner(text: str) -> str:
    """Replace the owner in each address of the repository in a text."""
    site, owner, name = repository().rsplit("/", 2)
    return re.sub(rf"({re.escape(site)}/|uses: |--repo )[\w.-]+/{name}\b", rf"\g<1>{owner}/{name}", text)


def bump(root: Path, version: str, now: datetime) -> None:
    """Change the version in all files, date the open section of the changelog, and begin a new section."""
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        sys.exit(f"{version!r} is not a version: write three numbers, such as 0.2.0")
    names = root / NAMES.relative_to(ROOT)
    old = re.search(r'^VERSION = "(.+)"$', names.read_text(encoding="utf-8"), re.MULTILINE)
    if old is None or tuple(map(int, version.split("."))) <= tuple(map(int, old[1].split("."))):
        sys.exit(f"{version} does not come after {old and old[1]}")
    log = root / "CHANGELOG.md"
    text = log.read_text(encoding="utf-8")
    head = f"## {old[1]} (unreleased)\n"
    if text.count(head) != 1:
        sys.exit(f"CHANGELOG.md has no section {head.strip()!r}")
    log.write_text(text.replace(head, f"## {version} (unreleased)\n\n## {old[1]} ({now:%Y-%m-%d})\n"), encoding="utf-8")
    names.write_text(
        names.read_text(encoding="utf-8").replace(f'VERSION = "{old[1]}"', f'VERSION = "{version}"'), encoding="utf-8"
    )
    for name in FILES_WITH_VERSION:
        page = root / name
        page.write_text(VERSION_TEXT.sub(rf"\g<1>{version}", page.read_text(encoding="utf-8")), encoding="utf-8")


def build(scratch: Path, downloads: str) -> dict[str, bytes]:
    """Build every file of a release from HEAD; the keys are the names."""
    source = scratch / "source"
    source.mkdir(parents=True)
    archive_of_head = subprocess.run(
        ["git", "archive", "--format=tar", "HEAD"], cwd=ROOT, capture_output=True, check=True
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(archive_of_head)) as tar:
        tar.extraction_filter = getattr(
            tarfile, "data_filter", lambda member, _: member
        )  # Python 3.11.3 and older have no data_filter
        tar.extractall(source)
    commit_log = subprocess.run(
        ["git", "log", "-1", "--format=%ct %H"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    seconds, commit = commit_log.stdout.split()
    environment = os.environ | {"SOURCE_DATE_EPOCH": seconds, "PYTHONDONTWRITEBYTECODE": "1"}
    out = scratch / "out"
    for arguments in (
        ["hatchling", "build", "-t", "wheel", "-t", "sdist", "-d", str(out)],
        ["cli.main", "manifests", "-q", "--helm", str(scratch / "drawbridge")],
    ):
        subprocess.run(
            [sys.executable, "-m", *arguments],
            cwd=source,
            env=environment,
            stdout=subprocess.DEVNULL,
            check=True,
            timeout=300,
        )
    files = {file.name: file.read_bytes() for file in out.iterdir()}
    [wheel] = (name for name in files if name.endswith(".whl"))
    chart = scratch / "drawbridge"
    files[f"drawbridge-{VERSION}.tgz"] = archive(
        {f"drawbridge/{file.relative_to(chart)}": file.read_bytes() for file in chart.rglob("*") if file.is_file()}
    )
    plugin = {"kubectl-drawbridge": PLUGIN.replace("VERSION", VERSION).encode(), wheel: files[wheel]}
    plugin |= {name: (source / name).read_bytes() for name in ("requirements.runtime.lock", "LICENSE")}
    files[f"kubectl-drawbridge-{VERSION}.tar.gz"] = archive(plugin)
    files["drawbridge.krew.yaml"] = yaml.safe_dump(krew(files, downloads), sort_keys=False).encode()
    files["sbom.cdx.json"] = (json.dumps(sbom(source, int(seconds), commit), indent=1) + "\n").encode()
    sums = "".join(f"{hashlib.sha256(files[name]).hexdigest()}  {name}\n" for name in sorted(files))
    return files | {"SHA256SUMS": sums.encode()}


def archive(files: Mapping[str, bytes]) -> bytes:
    """Return a .tar.gz of files in the order of their names, without times and owners."""
    tar_bytes = io.BytesIO()
    with tarfile.open(fileobj=tar_bytes, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name in sorted(files):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(files[name]), 0o755 if files[name].startswith(b"#!") else 0o644
            tar.addfile(entry, io.BytesIO(files[name]))
    return gzip.compress(tar_bytes.getvalue(), mtime=0)


def krew(files: Mapping[str, bytes], downloads: str) -> dict[str, Any]:
    """Return the manifest of the plugin for `kubectl krew`."""
    [name] = (name for name in files if name.startswith("kubectl-"))
    platform = {
        "selector": {"matchExpressions": [{"key": "os", "operator": "In", "values": ["linux", "darwin"]}]},
        "uri": f"{downloads}/v{VERSION}/{name}",
        "sha256": hashlib.sha256(files[name]).hexdigest(),
        "bin": "kubectl-drawbridge",
    }
    description = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["description"]
    return {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "drawbridge"},
        "spec": {
            "version": f"v{VERSION}",
            "homepage": downloads.removesuffix("/releases/download"),
            "shortDescription": "Move pods from device plugins to DRA",
            "description": f"{description}\nSurvey a cluster, translate and check manifests, explain why pods wait.\n",
            "caveats": "Needs Python 3.11 or newer; its packages are installed when it is called first.\n",
            "platforms": [platform],
        },
    }


def sbom(source: Path, seconds: int, commit: str) -> dict[str, Any]:
    """List the contents of the images (CycloneDX): the Python packages of the lock file, and the Go modules of our scheduler."""
    parts = []
    lock = (source / "requirements.runtime.lock").read_text(encoding="utf-8")
    for name, version, lock_lines in re.findall(r"^([\w.-]+)==([^ ;\\]+)((?:.*\\\n)*.*)", lock, re.MULTILINE):
        hashes = [{"alg": "SHA-256", "content": digest} for digest in re.findall(r"sha256:([0-9a-f]{64})", lock_lines)]
        parts.append(component(name, version, "pypi") | {"hashes": hashes})
    modules = (source / "bridge" / "go.sum").read_text(encoding="utf-8")
    parts += [
        component(name, version, "golang") for name, version in re.findall(r"^(\S+) (v\S+) h1:", modules, re.MULTILINE)
    ]
    application = component(
        tomllib.loads((source / "pyproject.toml").read_text(encoding="utf-8"))["project"]["name"], VERSION, "pypi"
    )
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": uuid.uuid5(uuid.NAMESPACE_URL, f"{application['purl']}#{commit}").urn,
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": application | {"type": "application", "licenses": [{"license": {"id": "Apache-2.0"}}]},
        },
        "components": parts,
    }


def component(name: str, version: str, ecosystem: str) -> dict[str, Any]:
    purl = f"pkg:{ecosystem}/{name}@{version}"
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


if __name__ == "__main__":
    main()
