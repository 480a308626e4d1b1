"""A webhook configuration has no rules before its CA bundle, and bundles written by other tools are kept."""

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
TEXT = b64encode(BUNDLE).decode()
RULE = [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}]


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


WAITING = {RULES: json.dumps({"a.drawbridge.dev": RULE})}


async def injected(made):
    cluster = Embedded.holding([made])
    await inject.ensure_bundle(cluster, await inject.read_webhooks(cluster, ["drawbridge"]), BUNDLE)
    (webhook,) = (await cluster.get(resources.MUTATING_WEBHOOKS.raw, "drawbridge"))["webhooks"]
    return webhook["clientConfig"].get("caBundle"), webhook.get("rules")


async def test_bundle_and_rules_are_written_together():
    assert await injected(configuration(**WAITING)) == (TEXT, RULE)


async def test_changed_rules_in_the_annotation_replace_the_old_ones():
    assert await injected(configuration(bundle=TEXT, rules=[], **WAITING)) == (TEXT, RULE)


async def test_a_configuration_without_the_annotation_keeps_its_rules():
    assert await injected(configuration(rules=RULE)) == (TEXT, RULE)


@pytest.mark.parametrize("keeper", [{BUNDLE_KEEPER: "other"}, {CERT_MANAGER: "ns/certificate"}])
async def test_rules_wait_for_a_bundle_that_another_tool_writes(keeper):
    assert await injected(configuration(**keeper, **WAITING)) == (None, None)
    assert await injected(configuration(bundle="b3RoZXI=", **keeper, **WAITING)) == ("b3RoZXI=", RULE)


@pytest.mark.parametrize("text", ["{", "[]", '"rules"'])
async def test_an_invalid_rules_annotation_leaves_the_webhook_without_rules(text):
    assert await injected(configuration(**{RULES: text})) == (TEXT, None)


async def test_rejected_rules_do_not_block_certificate_renewal(caplog):
    class Held(Embedded):
        async def patch(self, resource, name, change, *args, **kwargs):
            if "/rules" in str(change):
                raise Forbidden("rules that are there stay")
            return await super().patch(resource, name, change, *args, **kwargs)

    cluster = Held()
    cluster.load([configuration(rules=[], **WAITING)])
    assert await inject.ensure_bundle(cluster, await inject.read_webhooks(cluster, ["drawbridge"]), BUNDLE)
    assert "cannot write the rules" in caplog.text
    (webhook,) = (await cluster.get(resources.MUTATING_WEBHOOKS.raw, "drawbridge"))["webhooks"]
    assert webhook["clientConfig"]["caBundle"] == TEXT


async def test_only_a_wiped_bundle_triggers_the_watch():
    cluster = Embedded.holding([configuration(bundle=TEXT), configuration() | {"metadata": {"name": "other"}}])
    bell = ChangeWatch(cluster, namespace="default", secrets=["drawbridge"], webhooks=["drawbridge"])
    async with asyncio.TaskGroup() as group:
        ringing = group.create_task(bell.run())
        await eventually(lambda: asyncio.sleep(0, bell._changed.is_set()))
        bell._changed.clear()
        await cluster.patch(resources.MUTATING_WEBHOOKS.raw, "other", Merge({"metadata": {"labels": {"a": "b"}}}))
        wipe = {"webhooks": configuration()["webhooks"]}
        seen = bell._informers[1].events
        await cluster.patch(resources.MUTATING_WEBHOOKS.raw, "drawbridge", Merge(wipe))
        await eventually(lambda: asyncio.sleep(0, bell._informers[1].events > seen))
        assert bell._changed.is_set()
        assert bell._informers[1].events == seen + 1
        ringing.cancel()
