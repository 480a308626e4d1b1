"""A tree with an unexpected value anywhere is planned and edited, or refused."""

import os
import random
from pathlib import Path

import click
import pytest
import yaml

from analysis.migration import commits, make_plan, report
from cli.configuration import given_configuration
from cli.files import InputFiles
from cli.loading import read_whole
from cli.pull_request import write_steps
from cluster.manifests import ManifestError
from tests.analysis.migration.test_drivers import UNIT
from tests.cli.test_git_trees import flux, repository, write
from tests.cli.test_migrate_plan import OPERATOR, app

__all__ = ["repository"]

EXAMPLE = Path(__file__).parents[3] / "manifests" / "examples" / "homelab"
TREES = (
    {path.name: path.read_text() for path in EXAMPLE.iterdir()},
    UNIT | app("plex", "media", flux_more=", dependsOn: [{name: intel-gpu}]"),
    app("llm", "ai", "nvidia.com/gpu")
    | {"apps/gpu/release.yaml": OPERATOR % "true", "clusters/home/gpu.yaml": flux("gpu")},
)
UNEXPECTED = (None, "", 0, 1.5, [], {}, [None], {"a": {"b": 1}}, "a\nb", "${X}", "../../etc", "/", "x" * 300, "4.x")
CASES = 48


def places(value, path=()):
    """Yield the paths of everything below a value."""
    for name in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield (*path, name)
        yield from places(value[name], (*path, name))


def at(value, path):
    for name in path:
        value = value[name]
    return value


def broken(choose):
    """Return a tree with another value at some place of a file: an unexpected one, or that of another place."""
    files = choose(TREES)
    file = choose(sorted(files))
    documents = list(yaml.safe_load_all(files[file]))
    path = choose([*places(documents)])
    other = at(documents, choose([*places(documents)]))
    at(documents, path[:-1])[path[-1]] = choose([choose(UNEXPECTED), yaml.safe_load(yaml.safe_dump(other))])
    return files | {file: yaml.safe_dump_all(documents, sort_keys=False)}


class Committed:
    """A repository whose HEAD is the working directory."""

    root = property(lambda _: os.path.realpath("."))
    path_of = staticmethod(os.path.normpath)
    paths_of = staticmethod(list)

    @staticmethod
    def texts(paths, _):
        contents = {path: Path(path).read_bytes() for path in paths if Path(path).exists()}
        return {path: (content, content) for path, content in contents.items()}


@pytest.mark.parametrize("seed", range(CASES))
def test_an_unexpected_value_is_no_crash(repository, seed):
    write(repository, broken(random.Random(seed).choice))
    try:
        with click.Context(click.Command("migrate")):
            reading, read = read_whole(InputFiles(paths=(".",)), given_configuration(""), None)
        plan = make_plan(read.everything, read.tree, reading.state, read.skipped)
        steps = commits.pull_request(read.everything, read.tree, plan, reading.state)
        written = write_steps(steps, read.everything, Committed())
    except ManifestError:
        return
    assert report.report(plan).summary
    assert all(commits.message(step, steps, plan, ()) for step in steps)
    for text in [text for step in written for text in step.contents.values() if text]:
        assert any(yaml.safe_load_all(text))
