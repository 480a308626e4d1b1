"""A new dialect is one folder. Pages, examples, schemas and cases follow from it, so no list may name the dialects."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from docs.generate import generated
from tests.webhook.pods import ROOT

ACME = Path(__file__).with_name("acme")
# The tests about all dialects.
TESTS = ("webhook/dialects/test_vocabularies.py", "webhook/dialects/test_published.py", "cli/test_dialect_examples.py")
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A copy of the project, with the dialect `acme` in its folder, after `make generate`."""
    root = tmp_path_factory.mktemp("copy")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, root / name)
    folder = root / "webhook" / "dialects" / "acme"
    folder.mkdir()
    for path in ACME.iterdir():
        if path.is_file():
            shutil.copyfile(path, folder / path.name)
    run(root, "docs.generate")
    return root


def run(root, *arguments):
    environment = os.environ | {"PYTHONPATH": str(root)}
    result = subprocess.run(
        [sys.executable, "-m", *arguments], cwd=root, env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout[-8_000:] + result.stderr[-2_000:]
    return result.stdout


def test_a_dialect_has_at_most_four_files():
    assert len([path for path in ACME.iterdir() if path.is_file()]) <= 4


def test_pages_schemas_and_examples_have_the_new_dialect(copy):
    changed = {
        name
        for name in generated()
        if not (ROOT / name).exists() or (ROOT / name).read_text() != (copy / name).read_text()
    }
    assert changed >= {"docs/keys.md", "docs/drivers.md", "docs/schemas/config.json", "manifests/base/webhooks.yaml"}
    assert "### Acme device plugin (acme)\n\n- `acme.com/npu`: translated" in (copy / "docs/keys.md").read_text()
    assert "- `npu.acme.com`\n  - read in: acme/" in (copy / "docs/drivers.md").read_text()
    examples = copy / "manifests/examples"
    assert "name: acme-1\n" in (examples / "drivers/nodes.yaml").read_text()
    options = ("--inventory", "manifests/examples/drivers", "-o", "json")
    answer = json.loads(run(copy, "cli.main", "translate", "-f", "manifests/examples/acme/train.yaml", *options))
    assert [item["kind"] for item in answer["items"]] == ["ResourceClaimTemplate", "Job"]
    [request] = answer["items"][0]["spec"]["spec"]["devices"]["requests"]
    assert (request["exactly"]["deviceClassName"], request["exactly"]["count"]) == ("npu.acme.com", 2)


@pytest.mark.whole
def test_the_tests_of_dialects_pass_with_the_new_dialect(copy):
    report = run(
        copy,
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-m",
        "not (whole or long)",
        *[f"tests/{name}" for name in TESTS],
    )
    assert " passed" in report
