"""`drawbridge dashboard` on a live cluster: what it shows is what `drawbridge explain` says, and follows what changes."""

import json
import subprocess
import urllib.request
from contextlib import contextmanager
from urllib.error import HTTPError

import pytest

from e2e.actors import fleet
from e2e.actors.webhook import COMMAND
from e2e.actors.workloads import claim, pod, request, using

pytestmark = pytest.mark.real
DRIVER = "dashboard.example.com"


@contextmanager
def dashboard(kubeconfig):
    command = [*COMMAND, "dashboard", "--kubeconfig", str(kubeconfig), "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process.stdout.readline().split()[-1]
        finally:
            process.terminate()
            assert process.wait(20) == 0


def get(url):
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return answer.read().decode()
    except HTTPError as error:  # what is new is not there until the cluster is read again
        return error.read().decode()


def test_a_pod_that_waits_and_the_device_it_gets_are_shown_while_it_happens(control_plane, namespace, created):
    control_plane.add_fake_nodes(1, prefix="dashboard-")
    created(
        fleet.device_class("dashboard-gpu", f"device.driver == '{DRIVER}'"),
        claim("wants", namespace, request("gpu", "dashboard-gpu")),
        pod("p", namespace, resourceClaims=[using("wants")]),
    )
    try:
        with dashboard(control_plane.kubeconfig) as url:
            control_plane.wait_unschedulable(namespace, "p")
            asked = [*COMMAND, "explain", "pod/p", "-n", namespace, "--kubeconfig", str(control_plane.kubeconfig), "-o", "json"]  # fmt: skip
            said = json.loads(subprocess.run(asked, capture_output=True, text=True, timeout=60, check=True).stdout)

            def told():
                waiting = json.loads(get(f"{url}/api/v1/waiting"))["waiting"]
                return [one["reason"] for one in waiting if one["pod"] == f"{namespace}/p"]

            assert control_plane.until(
                "the reason is shown", lambda: told() == [said["pod"]["standing"]["message"]], 60
            )
            created(*fleet.slices(DRIVER, "dashboard-0", [fleet.device("gpu", {})], by_name=True))
            control_plane.wait_scheduled(namespace, "p", 60)
            held = f"{namespace}/p"
            control_plane.until("its holder is shown", lambda: held in get(f"{url}/nodes/dashboard-0"), 60)
            assert told() == []
    finally:
        control_plane.delete(f"/api/v1/namespaces/{namespace}/pods", gracePeriodSeconds=0)
        control_plane.remove({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "dashboard-0"}})
