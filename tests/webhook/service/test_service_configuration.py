"""Changes of the configuration while a webhook runs."""

import hashlib
import re

from tests.waiting import until
from tests.webhook.admission.reviews import gpu_pod
from tests.webhook.service.processes import post, replace, running, text, trust
from webhook.service.configuration_file import Source


async def test_a_new_configuration_is_in_force_without_a_restart(cluster, tmp_path):
    file = tmp_path / "drawbridge.yaml"
    good = "apiVersion: drawbridge.dev/v1alpha1\nkind: DrawbridgeConfiguration\nmode: {}\n"
    file.write_text(good.format("enforce"))
    async with running(cluster, Source(str(file), every=0.01)) as here:
        assert "patch" in await post(cluster, here.address, gpu_pod())
        file.write_text(good.format("warn"))

        async def warned():
            answer = await post(cluster, here.address, gpu_pod())
            return "patch" not in answer and "warnings" in answer

        await until(warned)


async def test_an_invalid_rule_file_is_reported_and_not_used(cluster, tmp_path):
    file = tmp_path / "drawbridge.yaml"
    head = "apiVersion: drawbridge.dev/v1alpha1\nkind: DrawbridgeConfiguration\n"
    table = "dialects: [{name: ours, title: Ours, keys: [{name: our.org/gpu, meaning: GPUs, role: ROLE}]}]\n"
    file.write_text(head)
    async with running(cluster, Source(str(file), every=0.01)) as here:
        ours = gpu_pod(limits={"our.org/gpu": "1"})
        assert "patch" not in await post(cluster, here.address, ours)
        replace(file, head + table.replace("ROLE", "count"))

        async def read():
            return "patch" in await post(cluster, here.address, ours)

        await until(read)
        replace(file, head + table.replace("ROLE", "cuont"))

        async def is_reported():
            _, metrics = await text(f"http://{here.metrics}/metrics")
            return "drawbridge_configuration_good 0.0" in metrics

        await until(is_reported)
        for url in (f"https://{here.address}", f"http://{here.metrics}"):
            status, body = await text(f"{url}/readyz?verbose", await trust(cluster))
            assert status == 200
            assert "[!]webhooks: the API server might not send pods with keys of our.org: " in body
            assert (
                f"[!]configuration: the new content is invalid, so the last valid one stays in use: {file}:3:" in body
            )
            assert "did you mean count?" in body
        assert "patch" in await post(cluster, here.address, ours)


async def test_a_process_without_a_configuration_shows_none(cluster):
    """The authority has no configuration. With a digest it would fire the shipped alert forever."""
    async with running(cluster) as here:
        assert "drawbridge_configuration_info{" not in (await text(f"http://{here.metrics}/metrics"))[1]


async def test_a_replica_shows_the_digest_of_its_configuration(cluster, tmp_path):
    file = tmp_path / "drawbridge.yaml"
    first = "apiVersion: drawbridge.dev/v1alpha1\nkind: DrawbridgeConfiguration\nmode: warn\n"
    second, bad = first.replace("warn", "observe"), first.replace("warn", "loud")
    file.write_text(first)

    async def shown(here):
        _, metrics = await text(f"http://{here.metrics}/metrics")
        return re.findall(r'^drawbridge_configuration_info\{sha256="([0-9a-f]*)"\} 1\.0$', metrics, re.MULTILINE)

    async with running(cluster, Source(str(file), every=0.01)) as here:
        assert await shown(here) == [digest(first)]
        replace(file, second)

        async def read():
            return await shown(here) == [digest(second)]

        await until(read)
        replace(file, bad)

        async def is_reported():
            return "[!]configuration" in (await text(f"http://{here.metrics}/readyz?verbose"))[1]

        await until(is_reported)
        assert await shown(here) == [digest(second)]


def digest(content):
    return hashlib.sha256(content.encode()).hexdigest()
