"""The accounts of the installation have only the rights that they need, and policies limit rights that RBAC cannot limit to one object."""

import re

from analysis.installation import BASE
from certs.store import allocators_name, authority_name, signature_name
from cluster import manifests
from tests.installed_objects import ACCOUNTS, SECRETS_READ_BY_ACCOUNT, base_objects, every_rule, rules


def test_the_webhook_has_read_permissions_only():
    assert {verb for rule in rules("drawbridge-webhook") for verb in rule["verbs"]} == {"get", "list", "watch"}


def test_no_account_has_wildcard_permissions():
    for rule in rules(*ACCOUNTS):
        assert "*" not in [*rule["verbs"], *rule["resources"], *rule["apiGroups"]]


def test_only_accounts_that_need_feature_gates_may_read_metrics():
    """An API server shows its feature gates in its metrics."""
    url_rules = {name: [rule for rule in every_rule(name) if "nonResourceURLs" in rule] for name in ACCOUNTS}
    metrics = [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]
    assert url_rules == {"drawbridge-webhook": metrics, "drawbridge-controller": metrics, "drawbridge-authority": []}


def test_only_the_authority_writes_the_secrets_that_each_account_reads():
    for role, names in SECRETS_READ_BY_ACCOUNT.items():
        secret_rules = [rule for rule in rules(role) if "secrets" in rule["resources"]]
        assert [rule["resourceNames"] for rule in secret_rules if rule["verbs"] != ["create"]] == [names]
        writes = {verb for rule in secret_rules for verb in rule["verbs"]} - {"get", "list", "watch"}
        assert writes == ({"create", "patch"} if role == "drawbridge-authority" else set())


def test_the_component_for_mixed_fleets_lets_the_webhook_list_pods():
    """The role grants list and watch only; `e2e/webhook/test_mixed.py` shows that this is enough."""
    role, binding = (document.object for document in manifests.read([BASE.parent / "mixed" / "role.yaml"]))
    assert role["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    [webhook_binding] = base_objects("ClusterRoleBinding", "drawbridge-webhook")
    assert binding["subjects"] == webhook_binding["subjects"]


def test_authority_cannot_read_pods_and_controller_cannot_write_webhook_configurations():
    resources_by_account = {
        role: {resource for rule in rules(role) for resource in rule["resources"]} for role in ACCOUNTS
    }
    registrations = {"mutatingwebhookconfigurations", "validatingwebhookconfigurations"}
    assert resources_by_account["drawbridge-authority"] == {"secrets", *registrations}
    assert not resources_by_account["drawbridge-controller"] & registrations
    roles_by_account = {
        subject["name"]: binding["roleRef"]["name"]
        for binding in base_objects("ClusterRoleBinding")
        for subject in binding["subjects"]
        if subject["name"] == "drawbridge-authority"
    }
    assert roles_by_account == {"drawbridge-authority": "drawbridge-authority"}, (
        "the authority has the role of another account, too"
    )


def test_every_validating_policy_fails_closed_and_has_one_binding_that_denies():
    folders = [path.parent for path in BASE.parent.rglob("kustomization.yaml") if "examples" not in path.parts]
    files = [path for folder in folders for path in folder.glob("*.yaml") if path.name != "kustomization.yaml"]
    objects = [document.object for document in manifests.read(files)]
    policies = [obj for obj in objects if obj["kind"] == "ValidatingAdmissionPolicy"]
    bindings = [obj["spec"] for obj in objects if obj["kind"] == "ValidatingAdmissionPolicyBinding"]
    names = [policy["metadata"]["name"] for policy in policies]
    assert sorted(binding["policyName"] for binding in bindings) == sorted(names)
    assert all(binding["validationActions"] == ["Deny"] for binding in bindings)
    # `drawbridge-mode` only reports an invalid mode earlier than the webhook does.
    open_policies = [name for name, policy in zip(names, policies, strict=True) if policy["spec"]["failurePolicy"] != "Fail"]  # fmt: skip
    assert open_policies == ["drawbridge-mode"]


def test_the_policy_covers_each_patchable_webhook_configuration():
    [policy] = base_objects("ValidatingAdmissionPolicy", "drawbridge-registration")
    [policy_rule] = policy["spec"]["matchConstraints"]["resourceRules"]
    [role_rule] = [
        rule for rule in rules("drawbridge-authority") if "validatingwebhookconfigurations" in rule["resources"]
    ]
    assert sorted(policy_rule["resourceNames"]) == sorted(role_rule["resourceNames"]) == ["drawbridge"]


def test_policies_limit_created_secrets_and_leases_to_the_patchable_names():
    """RBAC cannot limit the right to create to a name. The policy lists the same names as the code and as the right to patch."""
    patchable_names = {
        rule["resources"][0]: rule["resourceNames"]
        for role in ("drawbridge-authority", "drawbridge-controller")
        for rule in base_objects("Role", role)[0]["rules"]
        if "patch" in rule["verbs"]
    }
    expected_secrets = [
        "drawbridge",
        authority_name("drawbridge"),
        signature_name("drawbridge"),
        allocators_name("drawbridge"),
    ]
    assert sorted(patchable_names["secrets"]) == sorted(expected_secrets)
    [secrets] = base_objects("ValidatingAdmissionPolicy", "drawbridge-secrets")
    name_validation, *_ = secrets["spec"]["validations"]
    assert sorted(re.findall(r"'(drawbridge[-a-z]*)'", name_validation["expression"])) == sorted(expected_secrets)
    [leases] = base_objects("ValidatingAdmissionPolicy", "drawbridge-leases")
    [lease_validation] = leases["spec"]["validations"]
    assert lease_validation["expression"].endswith(f" == '{patchable_names['leases'][0]}'")
