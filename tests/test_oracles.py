"""The referees, which are Go programs with Kubernetes' own code, give the expected answers."""

import pytest

pytestmark = pytest.mark.oracle

SLICE = {
    "metadata": {"name": "s"},
    "spec": {
        "driver": "gpu.example.com",
        "nodeName": "n",
        "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "d0"}, {"name": "d1"}],
    },
}
CLASS = {"metadata": {"name": "gpu"}, "spec": {}}
CLAIM = {
    "metadata": {"name": "c", "namespace": "default", "uid": "1"},
    "spec": {
        "devices": {
            "requests": [
                {"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}}
            ]
        }
    },
}
NODE = {"metadata": {"name": "n"}}


def question(**changes):
    return {"node": NODE, "claims": [CLAIM], "slices": [SLICE], "classes": [CLASS], **changes}


def test_a_new_selector_uses_list_attributes_only_with_their_gate(cel_oracle):
    for_stored_selectors = cel_oracle.ask(expr='device.attributes["a"].b.exists(x, x == 1)')
    for_new_selectors = cel_oracle.ask(expr='device.attributes["a"].b.exists(x, x == 1)', env="new")
    with_gate = cel_oracle.ask(expr='device.attributes["a"].b.includes(1)', env="new", listAttributes=True)
    assert "compileError" not in for_stored_selectors
    assert "range of a comprehension" in for_new_selectors["compileError"]
    assert with_gate["maxCost"] == 68  # the estimate of Kubernetes for `includes`


def test_a_selector_has_a_result_and_a_cost_per_device(cel_oracle):
    answer = cel_oracle.ask(expr='device.driver == "a"', devices=[{"driver": "a"}, {"driver": "b"}])
    assert [outcome["result"] for outcome in answer["outcomes"]] == [True, False]
    assert all(outcome["cost"] > 0 for outcome in answer["outcomes"])


def test_quantities_print_in_their_canonical_form(quantity_oracle):
    assert quantity_oracle.ask(op="quantity", a="1024Mi")["text"] == "1Gi"
    assert "error" in quantity_oracle.ask(op="quantity", a="1 Gi")


def test_versions_ignore_build_metadata(quantity_oracle):
    assert quantity_oracle.ask(op="versions", a="1.0.0+a", b="1.0.0+b")["equal"]


def test_kubectl_reads_yes_as_a_boolean_and_skips_empty_documents(yaml_oracle):
    assert yaml_oracle.ask(op="stream", text="a: yes\n---\n---\nb: 1\n")["documents"] == [{"a": True}, {"b": 1}]


def test_the_allocator_takes_the_first_free_device(allocate_oracle):
    answer = allocate_oracle.ask(**question())
    assert answer["verdict"] == "feasible"
    (result,) = answer["allocations"][0]["devices"]["results"]
    assert result["device"] == "d0"

    allocated_claim = {
        **CLAIM,
        "metadata": {**CLAIM["metadata"], "name": "other"},
        "status": {"allocation": answer["allocations"][0]},
    }
    answer = allocate_oracle.ask(**question(allocatedClaims=[allocated_claim]))
    assert answer["allocations"][0]["devices"]["results"][0]["device"] == "d1"


def test_taint_rules_reach_the_allocator(allocate_oracle):
    rule = {
        "metadata": {"name": "r"},
        "spec": {"deviceSelector": {"device": "d0"}, "taint": {"key": "k", "effect": "NoSchedule"}},
    }
    answer = allocate_oracle.ask(**question(deviceTaintRules=[rule]))
    assert answer["allocations"][0]["devices"]["results"][0]["device"] == "d1"


def test_a_missing_class_is_an_error_missing_slices_are_not(allocate_oracle):
    assert allocate_oracle.ask(**question(classes=[]))["verdict"] == "error"
    assert allocate_oracle.ask(**question(slices=[]))["verdict"] == "infeasible"


def test_a_search_over_its_time_limit_is_a_timeout(allocate_oracle):
    devices = [{"name": f"d{i:02}"} for i in range(31)]
    claim = {
        **CLAIM,
        "spec": {
            "devices": {
                "requests": [
                    {
                        "name": f"r{i}",
                        "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 16},
                    }
                    for i in range(2)
                ]
            }
        },
    }
    large_slice = {**SLICE, "spec": {**SLICE["spec"], "devices": devices}}
    answer = allocate_oracle.ask(**question(claims=[claim], slices=[large_slice], deadlineMs=200))
    assert answer["verdict"] == "timeout"
    assert allocate_oracle.ask(**question())["verdict"] == "feasible"
