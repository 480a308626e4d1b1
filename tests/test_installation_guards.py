"""The manifests of the guards, which are admission policies: off by default, and for the namespace and drivers of the installation."""

from analysis.installation import BASE, MANAGED
from cluster import manifests
from tests.cli.running import run

CONFIGURATION = """\
apiVersion: drawbridge.dev/v1alpha1
kind: DrawbridgeConfiguration
bridge:
  schedulerName: drawbridge
  drivers: [gpu.nvidia.com, dra.net]
"""


def printed(*options):
    result = run("manifests", "--image", "registry.example/drawbridge:1", *options)
    assert result.exit_code == 0, result.stderr
    return {
        (o["kind"], o["metadata"]["name"]): o for o in (document.object for document in manifests.parse(result.stdout))
    }


def added(*options):
    plain = printed()
    return {key: value for key, value in printed("--guards", *options).items() if key not in plain}


def test_the_component_names_the_namespace_of_the_base():
    [component], [base] = (manifests.read([folder / "kustomization.yaml"]) for folder in (BASE.parent / "guards", BASE))
    assert component.object["namespace"] == base.object["namespace"]


def test_guards_are_off_by_default():
    assert not [key for key in printed() if "guard" in key[1]]
    policies = {name for kind, name in added() if kind == "ValidatingAdmissionPolicy"}
    bindings = [obj for (kind, _), obj in added().items() if kind == "ValidatingAdmissionPolicyBinding"]
    assert policies == {
        f"drawbridge-guard-{what}" for what in ("allocations", "bindings", "slices", "pools", "admin-access")
    }
    assert {binding["spec"]["policyName"] for binding in bindings} == policies
    assert {tuple(binding["spec"]["validationActions"]) for binding in bindings} == {("Deny",)}


def test_guards_use_our_namespace_and_keep_accounts_of_other_components():
    objects = added("--namespace", "elsewhere")
    listed = [obj for (kind, _), obj in objects.items() if kind == "ConfigMap"]
    references = [obj["spec"]["paramRef"] for obj in objects.values() if "paramRef" in obj.get("spec", {})]
    assert {obj["metadata"]["namespace"] for obj in listed} == {"elsewhere"}
    assert {(reference["name"], reference["namespace"]) for reference in references} == {
        (obj["metadata"]["name"], "elsewhere") for obj in listed
    }
    subjects = {
        (subject["name"], subject.get("namespace")) for made in objects.values() for subject in made.get("subjects", ())
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
    assert added()["ConfigMap", MANAGED]["data"] == {}
    assert set(added("--config", str(file))["ConfigMap", MANAGED]["data"]) == {"gpu.nvidia.com", "dra.net"}


def test_a_guard_policy_without_its_parameters_allows_requests():
    """A deleted ConfigMap must not stop drivers from publishing slices, or schedulers from writing claims."""
    for obj in added().values():
        if "paramRef" in obj.get("spec", {}):
            assert obj["spec"]["paramRef"]["parameterNotFoundAction"] == "Allow"
