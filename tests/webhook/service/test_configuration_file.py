import hashlib

import pytest

from webhook.service.configuration_file import ConfigurationError, Source

CONTENT = """\
apiVersion: drawbridge.dev/v1alpha1
kind: DrawbridgeConfiguration
mode: {mode}
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "drawbridge.yaml"
    path.write_text(CONTENT.format(mode="warn"))
    return path


def reload(source):
    return source.look() or source.look()


def test_without_a_file_the_defaults_are_in_force():
    assert Source().current.file.mode == "enforce"


def test_content_is_used_once_two_looks_have_seen_it(file):
    """A file may be half written: what it has is then valid, and not what the administrator means."""
    source = Source(str(file))
    file.write_text(CONTENT.format(mode="observe"))
    assert not source.look()
    file.write_text(CONTENT.format(mode="off"))
    assert not source.look()
    assert source.current.file.mode == "warn"
    assert source.look()
    assert source.current.file.mode == "off"
    assert not source.look(), "an unchanged file was read as a new configuration"


@pytest.mark.parametrize(
    ("content", "problem_part"),
    [
        (CONTENT.format(mode="loud"), "/mode"),
        (CONTENT.format(mode="warn") + "typo: 1\n", "typo"),
        ("mode: [", "drawbridge.yaml"),
        ("", "no object"),
        (CONTENT.format(mode="warn") + "---\n" + CONTENT.format(mode="warn"), "2 objects"),
        (None, "drawbridge.yaml"),  # the file is deleted
    ],
)
def test_an_invalid_file_is_reported_and_the_old_configuration_stays(file, content, problem_part):
    source = Source(str(file))
    file.unlink() if content is None else file.write_text(content)
    assert not reload(source)
    assert source.current.file.mode == "warn"
    assert problem_part in source.problem
    file.write_text(CONTENT.format(mode="off"))
    assert reload(source)
    assert (source.current.file.mode, source.problem) == ("off", "")


def test_an_invalid_file_at_startup_is_reported_with_all_reasons(file):
    file.write_text(CONTENT.format(mode="loud") + "canary: many\n")
    with pytest.raises(ConfigurationError) as caught:
        Source(str(file))
    assert "/mode" in str(caught.value)
    assert "/canary" in str(caught.value)


def test_a_mounted_config_map_changes_by_its_symlink(tmp_path):
    for name, mode in (("v1", "warn"), ("v2", "observe")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "drawbridge.yaml").write_text(CONTENT.format(mode=mode))
    (tmp_path / "..data").symlink_to("v1")
    (tmp_path / "drawbridge.yaml").symlink_to("..data/drawbridge.yaml")
    source = Source(str(tmp_path / "drawbridge.yaml"))
    (tmp_path / "new").symlink_to("v2")
    (tmp_path / "new").rename(tmp_path / "..data")
    assert reload(source)
    assert source.current.file.mode == "observe"


TABLE = """\
dialects:
- name: ours
  title: Ours
  keys:
  - {name: NAME, meaning: GPUs, role: count}
"""


def test_the_digest_is_that_of_the_content_in_force(file):
    def write(mode):
        file.write_text(CONTENT.format(mode=mode))
        return hashlib.sha256(file.read_bytes()).hexdigest()

    first_digest = write("warn")
    source = Source(str(file))
    assert source.digest == first_digest
    write("loud")
    reload(source)
    assert source.digest == first_digest
    second_digest = write("observe")
    reload(source)
    assert source.digest == second_digest
    assert Source().digest == ""


def test_a_rejected_configuration_is_reported_in_one_short_line(file):
    source = Source(str(file))
    assert not any(source.notes().values())
    file.write_text(CONTENT.format(mode="loud") + "canary: many\n" + TABLE.replace("count", "x" * 5000))
    reload(source)
    note = source.notes()["configuration"]
    assert f"{file}:3:" in note
    assert note.endswith("(and 2 more, in the log)")
    long_mistake = "meanings: {nvidia.com/gpu: " + "x" * 200 + "}\n"  # the error lists all dialects
    file.write_text(CONTENT.format(mode="warn") + long_mistake)
    reload(source)
    assert len(source.problem) > 500
    assert len(source.notes()["configuration"]) < 400
    file.write_text(CONTENT.format(mode="warn"))
    reload(source)
    assert not any(source.notes().values())


def test_keys_that_the_api_server_might_not_send_are_reported(file):
    source = Source(str(file))
    for name, reported in [("nvidia.com/our-gpu", False), ("our.org/gpu", True), ("amd.com/our-gpu", False)]:
        file.write_text(CONTENT.format(mode="warn") + TABLE.replace("NAME", name))
        assert reload(source)
        assert ("keys of our.org" in source.notes()["webhooks"]) == reported
    assert not Source(str(file)).notes()["webhooks"]
