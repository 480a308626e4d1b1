"""How `drawbridge driver` reads its options for device plugins (--adapt, --classes), before it connects to a server."""

import pytest
import yaml

from tests.cli.running import run


def test_the_device_classes_of_two_resources_are_printed():
    result = run("driver", "--classes", "nvidia.com/gpu", "--classes", "huawei.com/Ascend910")
    assert result.exit_code == 0
    first, second = yaml.safe_load_all(result.stdout)
    assert (first["kind"], first["spec"]["extendedResourceName"]) == ("DeviceClass", "nvidia.com/gpu")
    assert second["metadata"]["name"] == "ascend910.huawei.com.plugins.drawbridge.dev"


def test_the_printed_class_passes_drawbridge_check(tmp_path):
    file = tmp_path / "classes.yaml"
    file.write_text(run("driver", "--classes", "nvidia.com/gpu").stdout)
    checked = run("check", "-f", file)
    assert checked.exit_code == 0, checked.output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--classes", "gpu"), "'gpu' is not a valid resource name"),
        ((), "one source of devices is needed"),
        (("--adapt", "{folder}", "--inventory", "x"), "one source of devices is needed"),
        (("--adapt", "{folder}/no", "--node-name", "n"), "is not a folder"),
        (("--inventory", "x", "--facts", "y"), "need --adapt"),
        (("--inventory", "x", "--driver-name", "y"), "need --adapt"),
        (("--adapt", "{folder}", "--print"), "leave --print out"),
        (("--adapt", "{folder}", "--metrics-listen", "here"), "'here' is not HOST:PORT"),
        (("--adapt", "{folder}"), "give --node-name"),
        (("--adapt", "{folder}", "--node-name", "n", "--facts", "{folder}/two.yaml"), "holds 2 objects"),
        (("--adapt", "{folder}", "--node-name", "n", "--facts", "{folder}/facts.yaml"), "unknown field `pciebus`"),
    ],
)
def test_invalid_driver_options_exit_with_2_and_an_explanation(tmp_path, options, message):
    (tmp_path / "facts.yaml").write_text("GPU-1: {pciebus: x}\n")
    (tmp_path / "two.yaml").write_text("GPU-1: {}\n---\nGPU-2: {}\n")
    arguments = [option.format(folder=tmp_path) for option in options]
    result = run("driver", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
