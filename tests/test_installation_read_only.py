"""The manifests of the read-only allocator: valid arguments, off by default, and events are all it may write."""

from functools import partial

from allocator.service.read_only.allocator import COMPONENT
from tests.test_installation_driver import objects_of_component

objects_of_kind = partial(objects_of_component, "read-only")


def test_the_allocator_may_write_only_events():
    [role] = objects_of_kind("ClusterRole")
    written_resources = [
        rule["resources"] for rule in role["rules"] if not {"get", "list", "watch"}.issuperset(rule["verbs"])
    ]
    assert written_resources == [["events"]]
    [policy] = objects_of_kind("ValidatingAdmissionPolicy")
    [rule] = policy["spec"]["matchConstraints"]["resourceRules"]
    assert rule["resources"] == ["events"]
    assert f"'{COMPONENT}'" in policy["spec"]["validations"][0]["expression"]


def test_the_allocator_runs_read_only_with_one_replica():
    [deployment] = objects_of_kind("Deployment")
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    assert container["args"][0] == "allocator"
    assert "--read-only" in container["args"]
    assert deployment["spec"]["replicas"] == 1
