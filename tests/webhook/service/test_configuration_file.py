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


def test_without_a_file_the_defaults_are_in_force():
    assert Source().current.file.mode == "enforce"


def test_an_unchanged_file_keeps_the_configuration(file):
    source = Source(str(file))
    configuration = source.current
    assert not source.reload()
    assert source.current is configuration


def test_new_content_is_in_force_at_the_next_reload(file):
    source = Source(str(file))
    file.write_text(CONTENT.format(mode="observe"))
    assert source.reload()
    assert source.current.file.mode == "observe"


def test_a_file_changed_while_being_read_is_read_again(file):
    source = Source(str(file))
    file.write_text(CONTENT.format(mode="observe"))
    read_bytes = source._bytes

    def read_and_change():
        content = read_bytes()
        file.write_text(CONTENT.format(mode="off"))
        return content

    source._bytes = read_and_change
    assert source.reload()
    assert source.current.file.mode == "observe"
    source._bytes = read_bytes
    assert source.reload()
    assert source.current.file.mode == "off"
    assert not source.reload(), "an unchanged file was read as a new configuration"


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
    assert not source.reload()
    assert source.current.file.mode == "warn"
    assert problem_part in source.problem
    file.write_text(CONTENT.format(mode="off"))
    assert source.reload()
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
    assert source.reload()
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
    source.reload()
    assert source.digest == first_digest
    second_digest = write("observe")
    source.reload()
    assert source.digest == second_digest
    assert Source().digest == ""


def test_a_rejected_configuration_is_reported_in_one_short_line(file):
    source = Source(str(file))
    assert not any(source.notes().values())
    file.write_text(CONTENT.format(mode="loud") + "canary: many\n" + TABLE.replace("count", "x" * 5000))
    source.reload()
    note = source.notes()["configuration"]
    assert f"{file}:3:" in note
    assert note.endswith("(and 2 more, in the log)")
    long_mistake = "meanings: {nvidia.com/gpu: " + "x" * 200 + "}\n"  # the error lists all dialects
    file.write_text(CONTENT.format(mode="warn") + long_mistake)
    source.reload()
    assert len(source.problem) > 500
    assert len(source.notes()["configuration"]) < 400
    file.write_text(CONTENT.format(mode="warn"))
    source.reload()
    assert not any(source.notes().values())


def test_keys_that_the_api_server_might_not_send_are_reported(file):
    source = Source(str(file))
    for name, reported in [("nvidia.com/our-gpu", False), ("our.org/gpu", True), ("amd.com/our-gpu", False)]:
        file.write_text(CONTENT.format(mode="warn") + TABLE.replace("NAME", name))
        assert source.reload()
        assert ("keys of our.org" in source.notes()["webhooks"]) == reported
    assert not Source(str(file)).notes()["webhooks"]
