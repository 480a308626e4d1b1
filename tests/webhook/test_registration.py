import json

import msgspec
import pytest

from certs.annotations import BUNDLE_KEEPER, CERT_MANAGER, RULES
from webhook.dialects.table import Dialect, Position, Row
from webhook.registration import (
    Registration,
    configurations,
    mutating,
    names_not_sent,
    names_not_sent_by,
    on_mutate,
)
from webhook.state import CPUClaims
from webhook.state.configuration import DEFAULT, Configuration

DIALECTS = Configuration().dialects


def webhooks(options=Registration()):  # noqa: B008  immutable
    return [webhook for configuration in configurations(DIALECTS, options) for webhook in configuration["webhooks"]]


def test_every_webhook_has_no_side_effects_and_a_short_timeout():
    for webhook in webhooks(Registration(devices=True)):
        assert webhook["sideEffects"] == "None"
        assert webhook["timeoutSeconds"] == 3
        assert webhook["admissionReviewVersions"] == ["v1"]


def test_drawbridges_namespace_is_always_excluded():
    excluded = ["own", "kube-system", "kube-node-lease"]
    for webhook in webhooks(Registration(namespace="own")):
        (names, _) = webhook["namespaceSelector"]["matchExpressions"]
        assert names == {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": excluded}


def test_only_webhooks_for_pods_use_the_configured_failure_policy():
    for webhook in webhooks(Registration(failure_policy="Fail", devices=True)):
        assert (webhook["failurePolicy"] == "Fail") == webhook["name"].startswith("pods.")


def test_with_opt_in_only_labelled_namespaces_are_reviewed():
    for webhook in webhooks(Registration(opt_in=True)):
        assert {"key": "drawbridge.dev/mode", "operator": "In", "values": ["observe", "warn", "enforce"]} in webhook["namespaceSelector"]["matchExpressions"]  # fmt: skip


def test_mutation_covers_pods_but_none_of_their_subresources():
    (webhook,) = mutating(DIALECTS, Registration(ca_bundle="Ym9v"))["webhooks"]
    assert [rule["resources"] for rule in webhook["rules"]] == [["pods"]]
    assert webhook["reinvocationPolicy"] == "IfNeeded"


def test_a_process_outside_the_cluster_is_called_by_url():
    for webhook in webhooks(Registration(url="https://127.0.0.1:9443/", ca_bundle="Ym9v")):
        config = webhook["clientConfig"]
        assert config["url"] in ("https://127.0.0.1:9443/mutate", "https://127.0.0.1:9443/validate")
        assert config["caBundle"] == "Ym9v"


def test_pods_with_keys_of_a_custom_dialect_are_sent():
    dialect = Dialect(
        name="own",
        title="Own",
        keys=(
            Row(name="gpu.example.org/card", meaning="a card"),
            Row(name="bare-gpu", meaning="a card"),
            Row(name="it's/quoted", place=Position.ANNOTATION, role="count", meaning="odd"),
            Row(name="example.org/part-<name>", place=Position.ANNOTATION, role="count", meaning="a part"),
        ),
    )
    file = msgspec.structs.replace(DEFAULT, dialects=(dialect,))
    expression = on_mutate(Configuration(file).dialects)
    assert "'gpu.example.org'" in expression
    assert "'bare-gpu'" in expression
    assert r"it\'s/quoted" in expression
    assert "k.startsWith('example.org/part-')" in expression


CPU_CLAIMS_IN_BATCH = CPUClaims(namespaces={"batch": "translate"})


def test_pods_reach_the_webhook_for_cpus_only_where_configured():
    plain = on_mutate(DIALECTS)
    assert on_mutate(DIALECTS, CPUClaims(namespaces={"batch": "leave"})) == plain
    assert "request.namespace" not in plain
    in_batch = on_mutate(DIALECTS, CPU_CLAIMS_IN_BATCH)
    assert "request.namespace in ['batch'] && (" in in_batch
    assert "!(request.namespace in ['batch']) && (" in on_mutate(DIALECTS, CPUClaims(default="translate", namespaces={"batch": "leave"}))  # fmt: skip
    webhook_configurations = configurations(DIALECTS, Registration(cpus=CPU_CLAIMS_IN_BATCH))
    assert webhook_configurations[0]["webhooks"][0]["matchConditions"][0]["expression"] == in_batch
    # The validating webhooks do not depend on CPU claims.
    assert webhook_configurations[1] == configurations(DIALECTS, Registration())[1]


def test_cpus_of_namespaces_outside_the_condition_are_reported():
    def with_cpu_claims(cpus):
        return Configuration(msgspec.structs.replace(DEFAULT, cpu_claims=cpus))

    everywhere = CPUClaims(default="translate")
    assert names_not_sent_by(on_mutate(DIALECTS), with_cpu_claims(CPU_CLAIMS_IN_BATCH)) == ["cpu"]
    assert names_not_sent_by(on_mutate(DIALECTS, everywhere), with_cpu_claims(everywhere)) == []
    assert names_not_sent_by(on_mutate(DIALECTS, CPU_CLAIMS_IN_BATCH), with_cpu_claims(everywhere)) == ["cpu"]
    assert names_not_sent_by(on_mutate(DIALECTS), with_cpu_claims(CPUClaims())) == []
    assert names_not_sent(with_cpu_claims(CPU_CLAIMS_IN_BATCH), with_cpu_claims(everywhere)) == []
    assert names_not_sent(with_cpu_claims(everywhere), with_cpu_claims(CPU_CLAIMS_IN_BATCH)) == ["cpu"]
    assert names_not_sent(with_cpu_claims(CPUClaims()), with_cpu_claims(everywhere)) == []


def test_a_key_with_a_varying_domain_sends_every_extended_resource():
    dialect = Dialect(name="own", title="Own", keys=(Row(name="<vendor>.example.org/card", meaning="a card"),))
    assert "k.contains('/')" in on_mutate([dialect])


def test_without_a_bundle_the_rules_are_only_in_an_annotation():
    complete = configurations(DIALECTS, Registration(ca_bundle="Ym9v", devices=True))
    for configuration, complete_configuration in zip(
        configurations(DIALECTS, Registration(devices=True)), complete, strict=True
    ):
        assert not any("rules" in webhook for webhook in configuration["webhooks"])
        annotated_rules = json.loads(configuration["metadata"]["annotations"][RULES])
        assert annotated_rules == {webhook["name"]: webhook["rules"] for webhook in complete_configuration["webhooks"]}


@pytest.mark.parametrize(
    ("options", "annotation"),
    [
        (Registration(ca_bundle="Ym9v"), (BUNDLE_KEEPER, "other")),
        (Registration(inject_ca_from="ns/one"), (CERT_MANAGER, "ns/one")),
    ],
)
def test_the_webhook_configuration_names_what_maintains_the_ca_bundle(options, annotation):
    name, value = annotation
    assert all(
        configuration["metadata"]["annotations"][name] == value for configuration in configurations(DIALECTS, options)
    )


def test_a_plain_pod_matches_a_single_webhook():
    """All webhooks for pods except one require a label that only drawbridge sets."""
    pod_webhooks = [webhook for webhook in webhooks(Registration()) if webhook["name"].startswith("pods.")]
    labels = [webhook["objectSelector"].get("matchLabels") for webhook in pod_webhooks]
    assert labels == [None, {"drawbridge.dev/translated": "true"}]


def test_every_webhook_for_pods_excludes_pods_labelled_skip():
    selectors = [w["objectSelector"] for w in webhooks(Registration()) if w["name"].startswith("pods.")]
    skipped = {"key": "drawbridge.dev/skip", "operator": "NotIn", "values": ["true"]}
    assert [selector["matchExpressions"] for selector in selectors] == [[skipped]] * 2
