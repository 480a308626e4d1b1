"""Fixtures: an untrusted workspace, and programs outside of this workspace."""

import sys
import textwrap

import pytest

from tests.cli.foreign.runner import BAD_MANIFEST, GOOD_MANIFEST

# Names of modules that Python could import from the workspace: modules of drawbridge, of its dependencies, and of Python.
MODULES = (
    *(
        "allocator",
        "analysis",
        "certs",
        "cli",
        "cluster",
        "dra",
        "drawbridge",
        "manifests",
        "node",
        "serving",
        "webhook",
    ),
    *("click", "kubernetes", "msgspec", "re2", "yaml"),
    *("conftest", "ensurepip", "json", "pip", "re", "runpy", "secrets", "site", "sitecustomize", "sysconfig", "typing"),
    *("usercustomize", "venv"),
)


@pytest.fixture
def workspace(tmp_path):
    """Return a checkout. Each of its modules and programs writes to the file `ran` in the parent folder when it is executed."""
    folder = tmp_path / "workspace"
    folder.mkdir()
    record_execution = f"open({str(tmp_path / 'ran')!r}, 'a').write(__name__ + chr(10))\n"
    for name in MODULES:
        (folder / f"{name}.py").write_text(record_execution)
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(record_execution)
        (folder / name / "__main__.py").write_text(record_execution)
    (folder / "setup.py").write_text(record_execution)
    (folder / "evil.pth").write_text(f"import sys; {record_execution}")
    (folder / "pyproject.toml").write_text(
        "[build-system]\nrequires = []\nbuild-backend = 'conftest'\nbackend-path = ['.']\n"
    )
    (folder / ".env").write_text("PYTHONSTARTUP=conftest.py\n")
    # Files that uv, pip, pyenv, setuptools and git read in their working directory.
    (folder / "uv.toml").write_text("index-url = 'http://127.0.0.1:1/'\npython-preference = 'system'\n")
    (folder / ".python-version").write_text("./python\n")
    (folder / "pip.conf").write_text("[global]\npython = ./python\n")
    (folder / "setup.cfg").write_text("[options]\nsetup_requires = conftest\n")
    (folder / ".gitattributes").write_text("* filter=evil diff=evil\n")
    (folder / ".git").mkdir()
    git_config = f'[core]\nfsmonitor = {folder}/python\nsshCommand = {folder}/python\n[filter "evil"]\nsmudge = {folder}/python\nclean = {folder}/python\n'
    (folder / ".git" / "config").write_text(git_config)
    (folder / ".bashrc").write_text(f"echo bash >> {tmp_path / 'ran'}\n")
    program = folder / "python"
    program.write_text(f"#!/bin/sh\necho python >> {tmp_path / 'ran'}\n")
    program.chmod(0o755)
    (folder / "kubeconfig").write_text("apiVersion: v1\nkind: Config\n")
    (folder / "good.yaml").write_text(GOOD_MANIFEST)
    (folder / "bad.yaml").write_text(BAD_MANIFEST)
    return folder


@pytest.fixture
def python(tmp_path):
    """Return the interpreter that the action setup-python provides. Its pip installs nothing, and records its arguments."""
    program = tmp_path / "setup-python"
    pip = f"""\
        import os, sys
        print(os.getcwd(), sys.flags.isolated, *sys.argv[1:], sep="\\n", file=open({str(tmp_path / "pip")!r}, "w"))
    """
    script = f"""\
        #!{sys.executable} -I
        import os, pathlib, subprocess, sys, sysconfig
        arguments = sys.argv[1:]
        assert arguments[:3] == ["-I", "-m", "venv"], arguments
        subprocess.run([sys.executable, *arguments, "--without-pip"], check=True)
        [packages] = pathlib.Path(arguments[3]).glob("lib/*/site-packages")
        (packages / "packages.pth").write_text(sysconfig.get_path("purelib"))
        (packages / "pip.py").write_text({textwrap.dedent(pip)!r})
    """
    program.write_text(textwrap.dedent(script))
    program.chmod(0o755)
    return program


@pytest.fixture
def renderers(tmp_path):
    """Return a folder outside of the workspace with kustomize and helm, which print a bad object and record their arguments."""
    folder = tmp_path / "programs"
    folder.mkdir()
    for name, source_comment in (("kustomize", ""), ("helm", "# Source: app/templates/bad.yaml\n")):
        program = folder / name
        text = (source_comment + BAD_MANIFEST).replace("\n", "\\n")
        program.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$@\" > {tmp_path / name}\nprintf '{text}'\n")
        program.chmod(0o755)
    return folder
