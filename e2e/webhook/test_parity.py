"""The command line's verdict about files equals that of a real API server with the webhook, for pods and claims.

There are pods of every dialect and of the differential tests, and a pod for each refusal code. R010 has its own test, because files do
not show other webhooks. R024 has its own test, too (test_quota.py), because a quota would refuse the other pods. R030 is about our own kinds.
"""

import json
import subprocess

import pytest

from e2e.actors.client import ApiError
from e2e.actors.fleet import HAMI
from e2e.actors.webhook import COMMAND, CONFIGURATION, MODE, gpu
from e2e.webhook.test_neighbours import neighbour, stubborn
from tests.cli.test_one_verdict import UNKNOWN_PRODUCT, claim_and_template
from tests.webhook.admission.test_verdict import GPU, MEM, PODS, THREE_GPU_TEMPLATE, pod_in_n
from tests.webhook.dialects.test_vocabularies import CASES
from webhook.refusals import Code

pytestmark = pytest.mark.real

STRICT = f"""{CONFIGURATION}
numaBind: refuse
notUnderstood: refuse
unresolved: refuse
targets: [{{name: sizeless, driver: {HAMI}, classes: [{HAMI}]}}]
dialects:
- name: parts
  title: parts
  target: sizeless
  keys: [{{name: nvidia.com/percent-of-a-card, role: memoryPercent, meaning: percent of a card}}]
- name: network
  title: network
  target: nic
  keys: [{{name: example.com/nic, role: nic, meaning: a NIC}}]
joint: [{{primary: nvidia.com/gpu, secondary: example.com/nic, otherwise: refuse}}]
"""
NUMA = {"nvidia.com/numa-bind": "true"}
CODED = {
    "R004": pod_in_n({"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory-percentage": 0}),
    "R005": pod_in_n({GPU: 2, MEM: 1000}, annotations=NUMA),
    "R006": pod_in_n({"nvidia.com/percent-of-a-card": 50}),
    "R007": pod_in_n({MEM: 3000}),
    "R008": pod_in_n({GPU: 2, "example.com/nic": 3}),
    "R011": pod_in_n({GPU: 7}),
    "R021": pod_in_n(claims=["nowhere"]),
}
CODED["R007"]["spec"]["schedulerName"] = "kai-scheduler"
OF_POD = set(Code) - {Code.TWICE, Code.OBJECT, Code.QUOTA}
NOWHERE = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "nowhere"},
    "spec": {"spec": {"devices": {"requests": [{"name": "g", "exactly": {"deviceClassName": "no-such-class"}}]}}},
}
# Claims and templates, and a pod with a claim that was stored before the webhook was installed.
[IMPOSSIBLE, _] = claim_and_template(1, selectors=UNKNOWN_PRODUCT)
CLAIMS = {f"{obj['kind']} of {count}": obj for count in (1, 9) for obj in claim_and_template(count)} | {
    "impossible": IMPOSSIBLE
}
EPHEMERAL = pod_in_n({GPU: 1})
EPHEMERAL["spec"]["ephemeralContainers"] = [{"name": "d", "image": "i"}]
BY_CLAIM = pod_in_n(claims=["c"])
BY_CLAIM["spec"]["resourceClaims"] = [{"name": "c", "resourceClaimName": "c"}]
WORDS = {name: {"apiVersion": "v1", "kind": "Pod"} | row.pod for name, (_, row) in CASES.items() if not row.config}
SAMPLE = {
    **PODS,
    "ephemeral": EPHEMERAL,
    **CODED,
    **CLAIMS,
    "by claim": BY_CLAIM,
    **{name: WORDS[name] for name in sorted(WORDS)[::6]},
}
TOLD = ("nodes", "namespaces", "deviceclasses", "resourceslices", "resourceclaimtemplates", "resourceclaims")


def drawbridge(*arguments):
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)


def templates(pod_):
    return [entry.get("resourceClaimTemplateName") for entry in pod_["spec"].get("resourceClaims", ())]


def digests(names):
    """The digests in the names of templates: files use an unreserved name, and a part of the digest."""
    return names and [name and name.rpartition("-")[2][:16] for name in names]


def ask_the_server(cluster, pods):
    """Return the templates of each admitted pod, None for a refused one, and the refusals."""
    became, why = {}, {}
    for item in pods:
        name = item["metadata"]["name"]
        try:
            [stored] = cluster.create(item, dryRun="All")
            became[name] = templates(stored)
        except ApiError as error:
            if error.code not in (400, 403, 422):
                raise
            became[name], why[name] = None, error.message
    return became, why


def put_in_force(webhook, cluster, namespace):
    """Wait until the webhook applies this configuration, and knows the templates of the namespace."""
    webhook.follow(STRICT)
    for code in ("R005", "R011", "R021"):
        of_code = CODED[code]["metadata"]
        probe = {**CODED[code], "metadata": {**of_code, "name": "probe", "namespace": namespace}}

        def is_refused(code=code, probe=probe):
            return f"[{code}]" in ask_the_server(cluster, [probe])[1].get("probe", "")

        cluster.until(f"it is refused by {code}", is_refused, 30)


def by_the_webhook(cluster, namespace, objects):
    """Create objects that the webhook would refuse, while it is off in a namespace."""
    cluster.patch(f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": {MODE: "off"}}})

    def made():
        try:
            cluster.create(*objects, dryRun="All")
        except ApiError:
            return False
        return True

    cluster.until("the namespace is off", made, 30)
    cluster.create(*objects)


def squatter(webhook, cluster, namespace):
    """Return a template with other content under the name that a pod needs."""
    webhook.admits(namespace)
    item = {**CODED["R011"], "metadata": {"name": "planned", "namespace": namespace}}
    became, _ = ask_the_server(cluster, [item])
    [name] = became["planned"]
    labels = {"app.kubernetes.io/managed-by": "a-user"}
    return {**NOWHERE, "metadata": {"name": name, "namespace": namespace, "labels": labels}}


def test_files_and_a_real_webhook_agree(control_plane, fleet_node, gated, webhook, tmp_path):
    here = {"namespace": gated}
    made = [{**item, "metadata": {**item["metadata"], **here}} for item in (THREE_GPU_TEMPLATE, NOWHERE, IMPOSSIBLE)]
    made.append(squatter(webhook, control_plane, gated))
    by_the_webhook(control_plane, gated, made)
    webhook.admits(gated)
    items = [
        {**item, "metadata": {**item["metadata"], **here, "name": f"p{number}"}}
        for number, item in enumerate(SAMPLE.values())
    ]
    assert len(items) >= 60
    manifests, dump, config = (tmp_path / name for name in ("pods.json", "dump.json", "config.yaml"))
    manifests.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    config.write_text(STRICT)
    try:
        put_in_force(webhook, control_plane, gated)
        dump.write_text(control_plane.kubectl("get", "-A", "-o", "json", ",".join(TOLD)).stdout)
        became, why = ask_the_server(control_plane, items)
    finally:
        webhook.follow(CONFIGURATION)
    names = dict(zip(became, SAMPLE, strict=True))
    translated = drawbridge(
        "translate", "-f", str(manifests), "--inventory", str(dump), "--config", str(config), "-o", "json"
    )
    by_name = {item["metadata"]["name"]: item for item in translated["items"]}
    refused = {text.partition(":")[0].rpartition("/")[2]: text for text in translated["refusals"]}
    for name, answer in became.items():
        of_files = None if name in refused else templates(by_name[name])
        assert digests(of_files) == digests(answer), (names[name], refused.get(name), why.get(name))
    codes = {code for code in OF_POD if any(f"[{code}]" in text for text in why.values())}
    assert codes == OF_POD
    surveyed = drawbridge(
        "survey", "-f", str(manifests), "-f", str(dump), "--config", str(config), "-n", gated, "-o", "json"
    )
    outcomes = {workload["name"]: workload["outcome"] for workload in surveyed["workloads"]}
    # Claims are no workloads.
    bare = {name for name in why if names[name] in CLAIMS}
    assert {name for name, outcome in outcomes.items() if outcome == "refused"} == set(why) - bare
    checked = drawbridge("check", "-f", str(manifests), "-f", str(config), "--inventory", str(dump), "-o", "json")
    errors = {finding["object"].rpartition("/")[2] for finding in checked["findings"] if finding["severity"] == "error"}
    assert errors == set(why)


def test_survey_names_the_webhook_that_restores_a_key(control_plane, fleet_node, gated, tmp_path):
    """A later webhook restores a key. Files say that the pod moves, and name the webhook that prevents it."""
    item = gpu("p", gated)
    manifests, dump = tmp_path / "pod.json", tmp_path / "dump.json"
    manifests.write_text(json.dumps(item))
    with neighbour(control_plane, gated, stubborn, tmp_path, again="IfNeeded"):
        became, why = ask_the_server(control_plane, [item])
        dump.write_text(
            control_plane.kubectl("get", "-A", "-o", "json", f"{','.join(TOLD)},mutatingwebhookconfigurations").stdout
        )
    assert became == {"p": None}
    assert "[R010]" in why["p"]
    assert drawbridge("translate", "-f", str(manifests), "--inventory", str(dump), "-o", "json")["refusals"] == []
    surveyed = drawbridge("survey", "-f", str(manifests), "-f", str(dump), "-n", gated, "-o", "json")
    assert f"MutatingWebhookConfiguration/zz-{gated}"[:60] in json.dumps(surveyed["obstacles"])
