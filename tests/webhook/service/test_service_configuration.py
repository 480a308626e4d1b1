"""Changes of the configuration while a webhook runs."""

import hashlib

from tests.waiting import until
from tests.webhook.admission.reviews import gpu_pod
from tests.webhook.service.processes import get_text, post, replace, running, trusting_context
from webhook.service.configuration_file import Source


async def test_a_new_configuration_is_in_force_without_a_restart(cluster, tmp_path):
    file = tmp_path / "drawbridge.yaml"
    content = "apiVersion: drawbridge.dev/v1alpha1\nkind: DrawbridgeConfiguration\nmode: {}\n"
    file.write_text(content.format("enforce"))
    async with running(cluster, Source(str(file), every=0.01)) as process:
        assert "patch" in await post(cluster, process.address, gpu_pod())
        file.write_text(content.format("warn"))

        async def is_warned():
            answer = await post(cluster, process.address, gpu_pod())
            return "patch" not in answer and "warnings" in answer

        await until(is_warned)
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        metrics = (await get_text(f"http://{process.metrics}/metrics"))[1]
        assert f'drawbridge_configuration_info{{sha256="{digest}"}} 1.0' in metrics


async def test_an_invalid_rule_file_is_reported_and_not_used(cluster, tmp_path):
    file = tmp_path / "drawbridge.yaml"
    head = "apiVersion: drawbridge.dev/v1alpha1\nkind: DrawbridgeConfiguration\n"
    table = "dialects: [{name: ours, title: Ours, keys: [{name: our.org/gpu, meaning: GPUs, role: ROLE}]}]\n"
    file.write_text(head)
    async with running(cluster, Source(str(file), every=0.01)) as process:
        pod_with_our_key = gpu_pod(limits={"our.org/gpu": "1"})
        assert "patch" not in await post(cluster, process.address, pod_with_our_key)
        replace(file, head + table.replace("ROLE", "count"))

        async def is_translated():
            return "patch" in await post(cluster, process.address, pod_with_our_key)

        await until(is_translated)
        replace(file, head + table.replace("ROLE", "cuont"))

        async def is_reported():
            _, metrics = await get_text(f"http://{process.metrics}/metrics")
            return "drawbridge_configuration_good 0.0" in metrics

        await until(is_reported)
        for url in (f"https://{process.address}", f"http://{process.metrics}"):
            status, body = await get_text(f"{url}/readyz?verbose", await trusting_context(cluster))
            assert status == 200
            assert "[!]webhooks: the API server might not send pods with keys of our.org: " in body
            assert (
                f"[!]configuration: the new content is invalid, so the last valid one stays in use: {file}:3:" in body
            )
            assert "did you mean count?" in body
        assert "patch" in await post(cluster, process.address, pod_with_our_key)


async def test_a_process_without_a_configuration_shows_no_digest(cluster):
    """The authority has no configuration. If it showed a digest, the shipped alert would always fire."""
    async with running(cluster) as process:
        assert "drawbridge_configuration_info{" not in (await get_text(f"http://{process.metrics}/metrics"))[1]
