"""The manifests of the guards: off unless they are named, in the namespace and for the drivers of the installation."""

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
    done = run("manifests", "--image", "registry.example/drawbridge:1", *options)
    assert done.exit_code == 0, done.stderr
    return {(o["kind"], o["metadata"]["name"]): o for o in (one.object for one in manifests.parse(done.stdout))}


def added(*options):
    plain = printed()
    return {key: value for key, value in printed("--guards", *options).items() if key not in plain}


def test_the_component_names_the_namespace_of_the_base():
    [component], [base] = (manifests.read([folder / "kustomization.yaml"]) for folder in (BASE.parent / "guards", BASE))
    assert component.object["namespace"] == base.object["namespace"]


def test_no_guard_is_there_unless_it_is_asked_for():
    assert not [key for key in printed() if "guard" in key[1]]
    policies = {name for kind, name in added() if kind == "ValidatingAdmissionPolicy"}
    bindings = [one for (kind, _), one in added().items() if kind == "ValidatingAdmissionPolicyBinding"]
    assert policies == {
        f"drawbridge-guard-{what}" for what in ("allocations", "bindings", "slices", "pools", "admin-access")
    }
    assert {binding["spec"]["policyName"] for binding in bindings} == policies
    assert {tuple(binding["spec"]["validationActions"]) for binding in bindings} == {("Deny",)}


def test_in_another_namespace_our_accounts_and_lists_are_there_and_others_accounts_stay():
    found = added("--namespace", "elsewhere")
    listed = [one for (kind, _), one in found.items() if kind == "ConfigMap"]
    asked = [one["spec"]["paramRef"] for one in found.values() if "paramRef" in one.get("spec", {})]
    assert {one["metadata"]["namespace"] for one in listed} == {"elsewhere"}
    assert {(one["name"], one["namespace"]) for one in asked} == {
        (one["metadata"]["name"], "elsewhere") for one in listed
    }
    subjects = {(one["name"], one.get("namespace")) for made in found.values() for one in made.get("subjects", ())}
    assert subjects == {
        ("system:kube-scheduler", None),
        ("drawbridge-allocator", "elsewhere"),
        ("drawbridge-scheduler", "elsewhere"),
        ("resource-claim-controller", "kube-system"),
    }


def test_the_drivers_that_are_managed_are_those_of_the_bridge(tmp_path):
    file = tmp_path / "drawbridge.yaml"
    file.write_text(CONFIGURATION)
    assert added()["ConfigMap", MANAGED]["data"] == {}
    assert set(added("--config", str(file))["ConfigMap", MANAGED]["data"]) == {"gpu.nvidia.com", "dra.net"}


def test_a_guard_policy_without_its_parameters_allows_requests():
    """A deleted ConfigMap must not keep drivers from publishing, or claims from being written."""
    for one in added().values():
        if "paramRef" in one.get("spec", {}):
            assert one["spec"]["paramRef"]["parameterNotFoundAction"] == "Allow"
