"""A webhook configuration gets its rules together with a CA bundle, and keeps a bundle that another tool maintains."""

import asyncio
import json
from base64 import b64encode

import pytest

from certs import inject
from certs.annotations import BUNDLE_KEEPER, CERT_MANAGER, RULES
from certs.change_watch import ChangeWatch
from cluster import resources
from cluster.embedded.embedded import Embedded
from cluster.errors import Forbidden
from cluster.patch import Merge
from tests.cluster.conftest import eventually

BUNDLE = b"-----BEGIN CERTIFICATE-----"
ENCODED_BUNDLE = b64encode(BUNDLE).decode()
POD_RULES = [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}]


def configuration(*, bundle="", rules=None, **annotations):
    webhook = {"name": "a.drawbridge.dev", "clientConfig": {"url": "https://x"}}
    if bundle:
        webhook["clientConfig"]["caBundle"] = bundle
    if rules is not None:
        webhook["rules"] = rules
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "drawbridge", "annotations": annotations},
        "webhooks": [webhook],
    }


RULES_ANNOTATION = {RULES: json.dumps({"a.drawbridge.dev": POD_RULES})}


async def inject_bundle(stored_configuration):
    """Write the bundle into a stored configuration; return the bundle and the rules that its webhook has then."""
    cluster = Embedded.holding([stored_configuration])
    await inject.ensure_bundle(cluster, await inject.read_webhooks(cluster, ["drawbridge"]), BUNDLE)
    (webhook,) = (await cluster.get(resources.MUTATING_WEBHOOKS.raw, "drawbridge"))["webhooks"]
    return webhook["clientConfig"].get("caBundle"), webhook.get("rules")


async def test_bundle_and_rules_are_written_together():
    assert await inject_bundle(configuration(**RULES_ANNOTATION)) == (ENCODED_BUNDLE, POD_RULES)


async def test_rules_in_the_annotation_replace_the_rules_of_the_webhook():
    assert await inject_bundle(configuration(bundle=ENCODED_BUNDLE, rules=[], **RULES_ANNOTATION)) == (
        ENCODED_BUNDLE,
        POD_RULES,
    )


async def test_a_configuration_without_the_annotation_keeps_its_rules():
    assert await inject_bundle(configuration(rules=POD_RULES)) == (ENCODED_BUNDLE, POD_RULES)


@pytest.mark.parametrize("keeper", [{BUNDLE_KEEPER: "other"}, {CERT_MANAGER: "ns/certificate"}])
async def test_rules_wait_for_a_bundle_that_another_tool_writes(keeper):
    assert await inject_bundle(configuration(**keeper, **RULES_ANNOTATION)) == (None, None)
    assert await inject_bundle(configuration(bundle="b3RoZXI=", **keeper, **RULES_ANNOTATION)) == (
        "b3RoZXI=",
        POD_RULES,
    )


@pytest.mark.parametrize("text", ["{", "[]", '"rules"'])
async def test_an_invalid_rules_annotation_leaves_the_webhook_without_rules(text):
    assert await inject_bundle(configuration(**{RULES: text})) == (ENCODED_BUNDLE, None)


async def test_rejected_rules_do_not_block_certificate_renewal(caplog):
    class RulesAreForbidden(Embedded):
        async def patch(self, resource, name, change, *args, **kwargs):
            if "/rules" in str(change):
                raise Forbidden("rules must not change")
            return await super().patch(resource, name, change, *args, **kwargs)

    cluster = RulesAreForbidden()
    cluster.load([configuration(rules=[], **RULES_ANNOTATION)])
    assert await inject.ensure_bundle(cluster, await inject.read_webhooks(cluster, ["drawbridge"]), BUNDLE)
    assert "cannot write the rules" in caplog.text
    (webhook,) = (await cluster.get(resources.MUTATING_WEBHOOKS.raw, "drawbridge"))["webhooks"]
    assert webhook["clientConfig"]["caBundle"] == ENCODED_BUNDLE


async def test_only_changes_of_the_named_configuration_trigger_the_watch():
    cluster = Embedded.holding(
        [configuration(bundle=ENCODED_BUNDLE), configuration() | {"metadata": {"name": "other"}}]
    )
    watch = ChangeWatch(cluster, namespace="default", secrets=["drawbridge"], webhooks=["drawbridge"])
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(watch.run())
        await eventually(lambda: asyncio.sleep(0, watch._changed.is_set()))
        watch._changed.clear()
        await cluster.patch(resources.MUTATING_WEBHOOKS.raw, "other", Merge({"metadata": {"labels": {"a": "b"}}}))
        wipe = {"webhooks": configuration()["webhooks"]}
        events_before = watch._informers[1].events
        await cluster.patch(resources.MUTATING_WEBHOOKS.raw, "drawbridge", Merge(wipe))
        await eventually(lambda: asyncio.sleep(0, watch._informers[1].events > events_before))
        assert watch._changed.is_set()
        assert watch._informers[1].events == events_before + 1
        watching.cancel()
