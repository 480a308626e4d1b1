"""In an untrusted tree no file outside of the tree is read, quoted or written, despite links, pipes and patterns."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from analysis.printable import printable
from cli import undo
from cli.edited import Edited, write
from cluster.manifests import documents, places
from tests.cli.running import run, run_json

SECRET = "s3cr3t-of-another-place"
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  containers:
  - name: a
    image: b
    resources: {limits: {nvidia.com/gpu: 1, nvidia.com/gpumem: 3000}}
"""
CLASS = "---\napiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata: {name: G_O_O_D}\nspec: {}\n"
TEXTS_WITHOUT_A_MANIFEST = {
    "text": SECRET,
    "number": "81237645012",
    "list": f"- {SECRET}",
    "alias": f"*{SECRET}",
    "tag": f"!!int {SECRET}",
    "anchor": f"&{SECRET} [*{SECRET}]",
    "infinity": "a: .inf",
    "json": f'{{"{SECRET}": ',
    "broken": f"{SECRET}: [",
    "tabs": f"a:\n\t{SECRET}",
    "separator": f"--- {SECRET}",
    "key": f"? [{SECRET}]\n: a",
    "utf-16": SECRET,
}


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """An untrusted folder as the working directory, beside a folder with a secret and a manifest."""
    (tmp_path / "outside" / "inner").mkdir(parents=True)
    (tmp_path / "outside" / "secret").write_text(SECRET)
    (tmp_path / "outside" / "pod.yaml").write_text(POD.replace("NAME", SECRET))
    (tmp_path / "outside" / "inner" / "pod.yaml").write_text(POD.replace("NAME", SECRET))
    folder = tmp_path / "tree"
    (folder / "app").mkdir(parents=True)
    (folder / "app" / "good.yaml").write_text(POD.replace("NAME", "good") + CLASS)
    monkeypatch.chdir(folder)
    return folder


def outside_files(tree):
    """Return the bytes of every file outside of the tree."""
    return {path: path.read_bytes() for path in sorted((tree.parent / "outside").rglob("*")) if path.is_file()}


# The path of a link, and its target.
LINKS = {
    "secret file": ("app/x.yaml", "../../outside/secret"),
    "manifest": ("app/x.yaml", "../../outside/pod.yaml"),
    "absolute path": ("app/x.yaml", "{outside}/pod.yaml"),
    "link to a link": ("app/x.yaml", "y"),
    "environment of a process": ("app/x.yaml", "/proc/self/environ"),
    "file system of a process": ("app/x.yaml", "/proc/self/root{outside}/secret"),
    "path through a linked folder": ("app/x.yaml", "../inner/pod.yaml"),
    "endless device": ("app/x.yaml", "/dev/zero"),
}
COMMANDS = (
    ("check",),
    ("check", "-o", "github"),
    ("translate",),
    ("translate", "--in-place"),
    ("translate", "-o", "diff"),
)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.skipif(sys.platform != "linux", reason="/proc"))
        if "/proc" in LINKS[name][1]
        else name
        for name in LINKS
    ],
)
def test_a_link_out_of_the_folder_is_skipped_and_reported(tree, name, command):
    link, target = LINKS[name]
    (tree / "app" / "y").symlink_to("../../outside/secret")
    (tree / "inner").symlink_to("../outside/inner")
    (tree / link).symlink_to(target.format(outside=tree.parent / "outside"))
    before = outside_files(tree)
    for folder in ("app", tree / "app"):
        result = run(*command, folder)
        assert result.exit_code == 2
        assert "x.yaml: cannot be read: a link leads out of the folder" in result.stderr
        assert SECRET not in result.output
        assert "good" in result.output.casefold() or "nothing to edit" in result.output
    assert outside_files(tree) == before


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize(
    "path", ["link", "link/pod.yaml", "file.yaml", "app/../link", "./link/inner", "{tree}/link", "app/deep/pod.yaml"]
)
def test_a_path_through_an_outward_link_is_refused(tree, command, path):
    (tree / "link").symlink_to("../outside")
    (tree / "file.yaml").symlink_to("../outside/pod.yaml")
    (tree / "app" / "deep").symlink_to("../../outside")
    before = outside_files(tree)
    result = run(*command, path.format(tree=tree))
    assert result.exit_code == 2
    assert "a link leads out of the folder" in result.stderr
    assert SECRET not in result.output
    assert outside_files(tree) == before


def test_inventory_configuration_and_ignore_files_are_not_read_outside(tree):
    (tree / "link.yaml").symlink_to("../outside/secret")
    for options in (("--inventory", "link.yaml"), ("--config", "link.yaml")):
        result = run("check", "app", *options)
        assert result.exit_code == 2
        assert SECRET not in result.output
    (tree / "app" / ".drawbridgeignore").symlink_to("../../outside/secret")
    result = run("check", "app")
    assert result.exit_code == 2
    assert SECRET not in result.output


def test_a_linked_folder_outside_is_skipped_with_a_warning(tree):
    (tree / "app" / "out").symlink_to("../../outside")
    (tree / "app" / "round").symlink_to("..")
    (tree / "app" / "in").symlink_to(".")
    result = run("check", "app")
    assert result.exit_code == 1  # the DeviceClass in app/good.yaml has an invalid name
    assert result.stderr.count("warning: ") == 2
    assert "app/out: a link that leads out of the folder is skipped" in result.stderr
    assert SECRET not in result.output


def test_inner_links_and_outer_paths_named_directly_are_read(tree):
    (tree / "app" / "again.yaml").symlink_to("good.yaml")
    code, answer = run_json("translate", "app")
    assert (code, [obj["kind"] for obj in answer["items"]]) == (
        0,
        ["ResourceClaimTemplate", "Pod", "DeviceClass", "Pod", "DeviceClass"],
    )
    for path in ("../outside", "../outside/pod.yaml", tree.parent / "outside" / "inner"):
        code, answer = run_json("translate", path)
        assert code == 0
        assert SECRET in str(answer["items"])
    (tree.parent / "elsewhere").symlink_to("outside/pod.yaml")
    assert run("check", "../elsewhere").exit_code != 2


def test_a_pipe_of_the_shell_is_read(tree):
    read_end, write_end = os.pipe()
    os.write(write_end, POD.replace("NAME", "piped").encode())
    os.close(write_end)
    code, answer = run_json("translate", f"/dev/fd/{read_end}")
    os.close(read_end)
    assert (code, answer["items"][-1]["kind"]) == (0, "Pod")


def test_pipes_sockets_and_link_loops_do_not_block_a_check(tree):
    os.mkfifo(tree / "app" / "pipe.yaml")
    os.mkfifo(tree / "app" / ".drawbridgeignore")
    result = run("check", "app")
    assert result.exit_code == 2
    assert ".drawbridgeignore: cannot be read: it is not a regular file" in result.stderr
    (tree / "app" / ".drawbridgeignore").unlink()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("app/socket.yaml")
        (tree / "app" / "a.yaml").symlink_to("b.yaml")
        (tree / "app" / "b.yaml").symlink_to("a.yaml")
        result = run("check", "app", "-o", "json")
    assert result.exit_code == 2
    assert {Path(error["file"]).name for error in json.loads(result.stdout)["errors"]} == {"a.yaml", "b.yaml"}
    assert "pipe.yaml: a pipe, socket or device is skipped" in result.stderr


@pytest.mark.parametrize("replacement", ["link", "pipe", "folder"])
def test_a_path_replaced_after_the_check_is_not_read(tree, replacement, monkeypatch):
    """Another process replaces the path by a link or a pipe between the check and the open."""
    file = tree / "app" / "good.yaml"
    real_settled = places.settled

    def replace_after_the_check(path, root):
        settled_path = real_settled(path, root)
        if not file.is_symlink() and not (tree / "app").is_symlink():
            if replacement == "folder":
                (tree / "app").rename(tree / "away")
                (tree / "app").symlink_to("../outside")
                (tree.parent / "outside" / "good.yaml").write_text(POD.replace("NAME", SECRET))
            else:
                file.unlink()
                os.mkfifo(file) if replacement == "pipe" else file.symlink_to(tree.parent / "outside" / "pod.yaml")
        return settled_path

    monkeypatch.setattr(places, "settled", replace_after_the_check)
    result = run("translate", "app")
    assert result.exit_code == 2
    assert SECRET not in result.output


@pytest.mark.parametrize("replacement", ["link", "folder", "pipe"])
def test_in_place_does_not_write_to_a_replaced_path(tree, replacement, monkeypatch):
    text = POD.replace("NAME", SECRET)
    (tree / "app" / "good.yaml").write_text(text)
    (tree.parent / "outside" / "good.yaml").write_text(text)
    before = outside_files(tree)

    def replace_before_the_write(edits: list[Edited]):
        if replacement == "folder":
            (tree / "app").rename(tree / "away")
            (tree / "app").symlink_to("../outside")
        else:
            (tree / "app" / "good.yaml").unlink()
            if replacement == "pipe":
                os.mkfifo(tree / "app" / "good.yaml")
            else:
                (tree / "app" / "good.yaml").symlink_to("../../outside/good.yaml")
        write(edits)

    monkeypatch.setattr(undo, "write", replace_before_the_write)
    assert run("translate", "app", "--in-place").exit_code == 3
    assert outside_files(tree) == before
    assert not list(tree.rglob(".good.yaml*"))


def test_an_edit_does_not_change_a_hard_link_outside(tree):
    os.link(tree.parent / "outside" / "pod.yaml", tree / "app" / "hard.yaml")
    before = outside_files(tree)
    assert run("translate", "app", "--in-place").exit_code == 0
    assert outside_files(tree) == before
    assert "resourceClaims" in (tree / "app" / "hard.yaml").read_text()


@pytest.mark.parametrize("name", TEXTS_WITHOUT_A_MANIFEST)
@pytest.mark.parametrize("command", ["check", "translate", "survey"])
def test_messages_do_not_quote_a_text_that_is_no_manifest(tree, name, command):
    text = TEXTS_WITHOUT_A_MANIFEST[name]
    (tree / "app" / "x.yaml").write_bytes(text.encode("utf-16" if name == "utf-16" else "utf-8"))
    result = run(command, "-f", "app/x.yaml")
    assert result.exit_code == (2 if command == "translate" else 0)  # translate -o yaml must not lose an object
    assert "app/x.yaml" in result.output
    for part in (SECRET, SECRET[:8], "81237645012"):
        assert part not in result.output


def test_the_total_size_of_a_folders_manifests_is_limited(tree, monkeypatch):
    monkeypatch.setattr(documents, "MAX_BYTES", 400)
    for number in range(3):
        (tree / "app" / f"{number}.yaml").write_text(POD.replace("NAME", "a" * 50))
    result = run("check", "app")
    assert result.exit_code == 2
    assert "larger than" in result.stderr


@pytest.mark.parametrize("pattern", ["**/" * 40 + "x", "*a" * 60 + "b", "[z-a]", "[", "[[:x:]]", "a{1000}{1000}", "\\"])
def test_hostile_patterns_cause_no_bug(tree, pattern):
    deep = tree / "app" / "/".join(["aaaaaaaa"] * 12)
    deep.mkdir(parents=True)
    (deep / ("a" * 100 + ".yaml")).write_text(POD.replace("NAME", "a"))
    (tree / "app" / ".drawbridgeignore").write_text(pattern)
    result = run("check", "app")
    assert result.exit_code != 3
    assert "bug" not in result.stderr


HOSTILE_NAME = "\x1b[31m\r::error::x\x85\u2028\u202e##[add-mask]y%0A::z"


@pytest.mark.parametrize("form", ["text", "github", "markdown"])
def test_object_names_inject_no_commands_into_a_log(tree, form):
    quoted = "".join(f"\\u{ord(character):04x}" for character in HOSTILE_NAME)
    (tree / "app" / "evil.yaml").write_text(
        POD.replace("NAME", f'"{quoted}"').replace("Pod", f'"::add-mask::{quoted}"') + f'"{quoted}": 1\n'
    )
    (tree / "app" / "pod.yaml").write_text(POD.replace("NAME", f'"{quoted}"').replace("name: a", f'name: "{quoted}"'))
    result = run("check", "app", "-o", form)
    assert result.exit_code == 1
    lines = result.output.split("\n")
    assert not [character for line in lines for character in line if character in "\x1b\r\x85\u2028\u202e"]
    assert not [line for line in lines if line.startswith("::") and not line.startswith(("::error ", "::warning "))]
    assert not [line for line in lines if "##[" in line and not line.startswith("::")]
    if form == "github":
        commands = [line for line in lines if line.startswith("::")]
        assert commands
        assert all("%250A" in line or "%0A" not in line for line in commands)


def test_printable_text_is_no_workflow_command():
    assert [printable(line) for line in ("::a", " \t::a", "a::b", "##[a", "x##vso[", "####")] == [
        "\\x3a:a",
        " \\x09\\x3a:a",
        "a::b",
        "\\x23#[a",
        "x\\x23#vso[",
        "####",
    ]


NOT_UTF_8 = os.fsdecode(b"x\xff")


@pytest.mark.skipif(sys.platform != "linux", reason="names that are not UTF-8")
@pytest.mark.parametrize("form", ["text", "json", "sarif", "junit", "github", "diff", "in place"])
@pytest.mark.parametrize("path_pattern", ["app/{}.yaml", "app/{}/x.yaml"])
def test_a_file_name_that_is_not_utf_8_is_reported(tree, path_pattern, form):
    path = tree / path_pattern.format(NOT_UTF_8)
    path.parent.mkdir(exist_ok=True)
    path.write_text(POD.replace("NAME", "n_o"))
    command = ("translate", "--in-place") if form == "in place" else ("translate", "-o", form)
    result = run(*(command if form in ("diff", "in place") else ("check", "-o", form)), "app")
    assert result.exit_code == 2
    assert "app/x\\udcff" in result.stderr
    assert "its name is not UTF-8 (rename the file or folder" in result.stderr
    assert "n_o" not in result.output


@pytest.mark.skipif(sys.platform != "linux", reason="names that are not UTF-8")
def test_an_argument_that_is_not_utf_8_is_refused(tree):
    folder = tree / NOT_UTF_8
    folder.mkdir()
    (folder / "kustomization.yaml").write_text("resources: []\n")
    for options in (("-f", folder), ("-k", folder), ("--chart", folder), ("app", "--inventory", folder)):
        code, answer = run_json("check", *options)
        assert (code, answer["errors"][0]["message"]) == (2, "cannot be read: its name is not UTF-8")


@pytest.mark.parametrize("command", [("check",), pytest.param(("translate", "--in-place"), marks=pytest.mark.whole)])
def test_folders_nested_too_deep_are_reported_and_skipped(tree, command):
    """A checkout may have more than a thousand levels, which exceed Python's recursion limit in os.walk."""
    top = folder = os.open(tree / "app", os.O_RDONLY)
    for _ in range(1_100):
        os.mkdir("d", dir_fd=folder)
        inner_folder = os.open("d", os.O_RDONLY, dir_fd=folder)
        if folder != top:
            os.close(folder)
        folder = inner_folder
    os.close(folder)
    os.close(top)
    try:
        result = run(*command, "app")
    finally:
        subprocess.run(["rm", "-r", "app/d"], check=True)  # shutil.rmtree would exceed the recursion limit, too
    assert result.exit_code == 2
    assert f"its folders are nested deeper than {places.MAX_FOLDERS}" in result.stderr
    assert "bug" not in result.stderr


@pytest.mark.parametrize(
    "path", ["../outside/pod.yaml", "{outside}/pod.yaml", "link/pod.yaml", "../tree/../outside/pod.yaml"]
)
@pytest.mark.parametrize("field", ["pod", "inventory", "config"])
def test_a_file_of_cases_reads_nothing_outside_of_the_folder(tree, path, field):
    """`drawbridge test` runs the cases of drawbridge-test.yaml, which names other files."""
    (tree / "link").symlink_to("../outside")
    path = path.format(outside=tree.parent / "outside")
    case = {"name": "a", "pod": "app/good.yaml", "expect": {"says": "x"}}
    case |= {"inventory": [path]} if field == "inventory" else {"pod": path} if field == "pod" else {}
    text = json.dumps({"cases": [case], **({"config": path} if field == "config" else {})})
    (tree / "drawbridge-test.yaml").write_text(text)
    result = run("test")
    assert result.exit_code == 2
    assert "outside of the working directory" in result.stderr or "a link leads out of the folder" in result.stderr
    assert SECRET not in result.output


@pytest.mark.parametrize("path", ["-", "pipe.yaml", "kustomize:app", "https://127.0.0.1:9/x"])
def test_a_file_of_cases_reads_only_regular_files(tree, path):
    os.mkfifo(tree / "pipe.yaml")
    (tree / "drawbridge-test.yaml").write_text(
        json.dumps({"cases": [{"name": "a", "pod": path, "expect": {"says": "x"}}]})
    )
    result = run("test", stdin=POD.replace("NAME", SECRET))
    assert result.exit_code == 2
    assert "is not a regular file" in result.stderr or "No such file" in result.stderr
