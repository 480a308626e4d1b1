"""Renders the chart with Helm, and reads the objects that Helm and `drawbridge manifests` print."""

import json
import subprocess

import pytest

from cluster import manifests
from e2e.build import program
from tests.cli.running import run

IMAGE, SCHEDULER = "registry.example/drawbridge:1", "registry.example/kube-scheduler:v1.37.2"
IMAGES = ("--set", f"image={IMAGE}", "--set", f"bridge.schedulerImage={SCHEDULER}")
RELEASE = "drawbridge"


def drawbridge(*arguments):
    """Run the command in this process and return what it prints; a hundred processes would take longer than all comparisons."""
    done = run(*arguments)
    assert done.exit_code == 0, done.stderr
    return done.stdout


def helm(*arguments, check=True):
    command = [program("helm"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=check, timeout=120)


@pytest.fixture(scope="module")
def chart(tmp_path_factory):
    folder = tmp_path_factory.mktemp("helm") / "chart"
    drawbridge("manifests", "--chart", str(folder))
    return str(folder)


def by_name(text):
    objects_ = [document.object for document in manifests.parse(text)]
    objects = {(obj["kind"], obj["metadata"].get("namespace"), obj["metadata"]["name"]): obj for obj in objects_}
    assert len(objects) == len(objects_)
    return objects


def value_file(folder, **values):
    """Write values for the chart and the command."""
    file = folder / "values.yaml"
    file.write_text(json.dumps({"image": IMAGE, **values}))
    return str(file)


def rendered(chart, *values, namespace="default"):
    done = helm("template", RELEASE, chart, "--namespace", namespace, *IMAGES, *values)
    return by_name(done.stdout)


def printed(*options):
    return by_name(drawbridge("manifests", "--image", IMAGE, *options))


def refusal(chart, *values):
    done = helm("template", RELEASE, chart, *values, check=False)
    assert done.returncode != 0
    return done.stderr


WITH_SCHEDULER = {"enabled": True, "schedulerImage": SCHEDULER}
