"""The manifests of the guards, which are admission policies: off by default, and for the namespace and drivers of the installation."""

from cli.installation import MANAGED
from cluster import manifests
from tests.cli.running import run_manifests

CONFIGURATION = """\
apiVersion: drawbridge.dev/v1alpha1
kind: DrawbridgeConfiguration
bridge:
  schedulerName: drawbridge
  drivers: [gpu.nvidia.com, dra.net]
"""


def printed_objects(*options, **values):
    result = run_manifests("--image", "registry.example/drawbridge:1", *options, **values)
    assert result.exit_code == 0, result.stderr
    return {
        (obj["kind"], obj["metadata"]["name"]): obj
        for obj in (document.object for document in manifests.parse(result.stdout))
    }


def objects_of_guards(*options):
    plain = printed_objects()
    return {key: value for key, value in printed_objects(*options, guards=True).items() if key not in plain}


def test_guards_are_off_by_default():
    assert not [key for key in printed_objects() if "guard" in key[1]]
    policies = {name for kind, name in objects_of_guards() if kind == "ValidatingAdmissionPolicy"}
    assert policies == {
        f"drawbridge-guard-{subject}" for subject in ("allocations", "bindings", "slices", "pools", "admin-access")
    }


def test_guards_name_the_installations_namespace_and_known_accounts():
    objects = objects_of_guards("--namespace", "elsewhere")
    config_maps = [obj for (kind, _), obj in objects.items() if kind == "ConfigMap"]
    references = [obj["spec"]["paramRef"] for obj in objects.values() if "paramRef" in obj.get("spec", {})]
    assert {obj["metadata"]["namespace"] for obj in config_maps} == {"elsewhere"}
    assert {(reference["name"], reference["namespace"]) for reference in references} == {
        (obj["metadata"]["name"], "elsewhere") for obj in config_maps
    }
    subjects = {
        (subject["name"], subject.get("namespace"))
        for role_binding in objects.values()
        for subject in role_binding.get("subjects", ())
    }
    assert subjects == {
        ("system:kube-scheduler", None),
        ("drawbridge-allocator", "elsewhere"),
        ("drawbridge-scheduler", "elsewhere"),
        ("resource-claim-controller", "kube-system"),
    }


def test_the_managed_drivers_are_the_drivers_of_the_bridge(tmp_path):
    file = tmp_path / "drawbridge.yaml"
    file.write_text(CONFIGURATION)
    assert objects_of_guards()["ConfigMap", MANAGED]["data"] == {}
    assert set(objects_of_guards("--config", str(file))["ConfigMap", MANAGED]["data"]) == {"gpu.nvidia.com", "dra.net"}


def test_a_guard_policy_without_its_parameters_allows_requests():
    """A deleted ConfigMap must not stop drivers from publishing slices, or schedulers from writing claims."""
    for obj in objects_of_guards().values():
        if "paramRef" in obj.get("spec", {}):
            assert obj["spec"]["paramRef"]["parameterNotFoundAction"] == "Allow"
