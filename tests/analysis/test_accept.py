"""`drawbridge migrate accept`: what it creates, and how it judges what pods and nodes report."""

import json
import subprocess

import pytest

from analysis.loading import reading_of
from analysis.migration import accept, accept_pods
from analysis.migration.accept import Kind
from analysis.migration.accept_pods import CHECKPOINTS, ContainerView, HostFiles
from cluster.objects import Event
from dra import cel
from tests.objects import device_class, node, resource_slice
from webhook.state import Features

DRIVER, KEY, UID = "gpu.nvidia.com", "nvidia.com/gpu", "1-2-3"
GPU = {"name": "gpu-0", "attributes": {"productName": {"string": "A 100"}}}
CLASS = device_class(DRIVER, f"device.driver == '{DRIVER}'")
KIND = Kind(DRIVER, DRIVER, "A 100", "productName")
CDI_NAME = f"k8s.{DRIVER}/claim={UID}-gpu-0"
CDI_FILE = f"/run/cdi/k8s.{DRIVER}-{UID}.yaml"
SPEC = f"""\
cdiVersion: 0.5.0
kind: k8s.{DRIVER}/claim
containerEdits:
  deviceNodes: [{{path: /dev/nvidiactl}}]
  mounts: [{{hostPath: /usr/local/lib/libcuda.so, containerPath: /usr/lib/libcuda.so}}]
  hooks: [{{hookName: createContainer, path: /usr/bin/nvidia-cdi-hook}}]
devices:
- name: {UID}-gpu-0
  containerEdits: {{env: [NVIDIA_VISIBLE_DEVICES=void], deviceNodes: [{{path: /dev/nvidia0, hostPath: /driver/dev/nvidia0}}]}}
- name: another
  containerEdits: {{deviceNodes: [{{path: /dev/nvidia7}}]}}
"""
USUAL = frozenset(("/dev/null",))
SEEN = ContainerView(
    USUAL | {"/dev/nvidia0", "/dev/nvidiactl"}, frozenset(("NVIDIA_VISIBLE_DEVICES=void",)), frozenset()
)
NOTHING = ContainerView(USUAL, frozenset(), frozenset())


def reading(*objects):
    return reading_of([CLASS, *objects], Features())


def published(*devices, driver=DRIVER):
    return resource_slice("s", *devices, driver=driver, pool="n0", nodeName="n0")


def checkpoint(*cdi_names, uid=UID):
    devices = [{"PoolName": "n0", "DeviceName": "gpu-0", "CDIDeviceIDs": [name]} for name in cdi_names]
    claims = [{"ClaimUID": uid, "DriverState": {DRIVER: {"Devices": devices or None}}}]
    return json.dumps({"Data": json.dumps({"ClaimInfoStateList": claims}), "Checksum": 1})


def files():
    return HostFiles({CDI_FILE: SPEC, CHECKPOINTS[0]: checkpoint(CDI_NAME)}, USUAL, frozenset())


EMPTY = HostFiles({}, USUAL, frozenset())
EDITS = accept.edits_of([CDI_NAME], files())


@pytest.mark.parametrize(
    ("objects", "kinds"),
    [
        ([published(GPU)], [KIND]),
        ([published(GPU, GPU | {"name": "gpu-1"})], [KIND]),
        ([published({"name": "gpu-0"})], [Kind(DRIVER, DRIVER)]),
        ([published(GPU), device_class("any", "true")], [Kind("any", *KIND[1:]), KIND]),
        ([published(GPU, driver="other"), device_class("wrong", 'device.attributes["x"].absent == "y"')], []),
        ([published(GPU, driver="compute-domain.nvidia.com"), device_class("channel", "true")], []),
        ([], []),
    ],
)
def test_kinds_are_the_products_that_a_class_selects(objects, kinds):
    assert accept.kinds_of("n0", reading(node("n0"), *objects).stock) == kinds


@pytest.mark.parametrize(
    ("objects", "passed"),
    [
        ([node("n0", allocatable={KEY: "0"}), published(GPU)], {"devices": True, "offered once": True}),
        ([node("n0", allocatable={KEY: "1"}), published(GPU)], {"devices": True, "offered once": False}),
        ([node("n0")], {"devices": False}),
        ([node("other"), published(GPU)], {"devices": False}),
    ],
)
def test_a_node_must_have_devices_that_no_plugin_offers(objects, passed):
    observed = reading(*objects)
    kinds = accept.kinds_of("n0", observed.stock) if "n0" in observed.stock.nodes else []
    checks = list(accept.check_offers("n0", kinds, observed))
    assert {check.check: check.passed for check in checks} == passed
    assert all(check.passed or check.remedy or "no such node" in check.message for check in checks)


def test_the_claim_selects_only_devices_of_its_kind():
    request = accept_pods.claim("c", KIND)["spec"]["devices"]["requests"][0]["exactly"]
    stock = reading(node("n0"), published(GPU, {"name": "gpu-1"})).stock
    selectors = [cel.compile(selector["cel"]["expression"]) for selector in request["selectors"]]
    selected = [
        published_device.name
        for pool in stock.pools("n0")
        for page in pool.accessible
        for published_device in page.devices
        if all(selector.matches(cel.view_of(DRIVER, published_device)) for selector in selectors)
    ]
    assert selected == ["gpu-0"]


def container_waiting(reason, message="", ended=""):
    status = {"state": {"waiting": {"reason": reason, "message": message}}}
    if ended:
        status["lastState"] = {"terminated": {"message": ended}}
    return {"status": {"containerStatuses": [status]}}


UNPREPARED = Event(reason="FailedPrepareDynamicResources", type="Warning", message="connection refused", count=1)
UNPLACED = {"status": {"conditions": [{"type": "PodScheduled", "status": "False", "message": "cannot allocate"}]}}


@pytest.mark.parametrize(
    ("pod", "events", "waited", "words"),
    [
        ({}, [], 1, None),
        ({}, [], 121, "has not started"),
        (container_waiting("ContainerCreating"), [], 1, None),
        (container_waiting("ImagePullBackOff", "no such host"), [], 1, "no such host"),
        (
            container_waiting("CreateContainerError", "unresolvable CDI devices x"),
            [],
            1,
            "does not find the claim's CDI file",
        ),
        (container_waiting("CreateContainerError", "CDI support is explicitly disabled"), [], 1, "CDI is off"),
        (container_waiting("CrashLoopBackOff", "back-off", "no such file"), [], 1, "does not start: no such file"),
        ({}, [UNPREPARED], 1, None),
        ({}, [UNPREPARED], 61, "connection refused"),
        ({}, [UNPREPARED, UNPREPARED], 1, "connection refused"),
        ({}, [Event(reason="FailedMount", type="Warning", message="timed out")], 121, "timed out"),
        (UNPLACED, [], 1, None),
        (UNPLACED, [], 31, "cannot allocate"),
        ({"status": {"phase": "Failed", "message": "node is full"}}, [], 1, "node is full"),
    ],
)
def test_a_pod_that_does_not_start_has_a_fault(pod, events, waited, words):
    fault = accept.start_fault(pod, events, waited)
    assert (fault is None) == (words is None)
    assert fault is None or (words in fault.message and fault.remedy)


def test_the_kubelet_names_the_cdi_devices_of_a_claim():
    assert accept.cdi_devices(UID, files()) == [CDI_NAME]
    assert accept.cdi_devices("other", files()) is None
    assert accept.cdi_devices(UID, EMPTY) is None
    assert accept.cdi_devices(UID, EMPTY._replace(files={CHECKPOINTS[1]: checkpoint()})) == []


def test_edits_are_those_of_the_claims_devices_and_of_their_file():
    assert EDITS.devices == {"/dev/nvidia0", "/dev/nvidiactl"}
    assert EDITS.environment == {"NVIDIA_VISIBLE_DEVICES=void"}
    assert EDITS.mounts == {"/usr/lib/libcuda.so"}
    paths = ["/dev/nvidiactl", "/driver/dev/nvidia0", "/usr/bin/nvidia-cdi-hook", "/usr/local/lib/libcuda.so"]
    assert sorted(EDITS.host_paths) == paths
    assert EDITS.files == {CDI_FILE}
    assert EDITS.undefined == ()


@pytest.mark.parametrize("content", ["{", "", "[]", "kind: 1"])
def test_a_file_that_is_no_cdi_file_defines_nothing(content):
    assert accept.edits_of([CDI_NAME], EMPTY._replace(files={CDI_FILE: content})).undefined == (CDI_NAME,)


@pytest.mark.parametrize(
    ("names", "edits", "missing", "words"),
    [
        ([CDI_NAME], EDITS, (), None),
        ([CDI_NAME], EDITS, ("/elsewhere",), None),
        ([CDI_NAME], EDITS, ("/usr/local/lib/libcuda.so",), f"/usr/local/lib/libcuda.so (in {CDI_FILE})"),
        ([CDI_NAME], accept.edits_of([CDI_NAME], EMPTY), (), CDI_NAME),
        (None, accept.edits_of([], EMPTY), (), CHECKPOINTS[0]),
        ([], accept.edits_of([], EMPTY), (), None),
    ],
)
def test_every_host_path_of_the_claims_cdi_files_exists(names, edits, missing, words):
    fault = accept.files_fault(names, edits, frozenset(missing))
    assert (fault is None) == (words is None)
    assert fault is None or (words in fault.message and fault.remedy)


def seeing(view, *more):
    return view._replace(devices=view.devices | {*more})


@pytest.mark.parametrize(
    ("edits", "claimed", "bare", "words"),
    [
        (EDITS, SEEN, NOTHING, None),
        (EDITS, NOTHING, NOTHING, "CDI is off"),
        (EDITS, SEEN._replace(devices=SEEN.devices - {"/dev/nvidia0"}), NOTHING, "lacks"),
        (EDITS, seeing(SEEN, "/dev/nvidia1"), NOTHING, "/dev/nvidia1"),
        (EDITS, SEEN, seeing(NOTHING, "/dev/nvidia1"), "without a claim"),
        (accept.edits_of([], EMPTY), seeing(NOTHING, "/dev/infiniband/uverbs0"), NOTHING, None),
    ],
)
def test_each_container_sees_exactly_the_devices_of_its_claim(edits, claimed, bare, words):
    fault = accept.isolation_fault(edits, claimed, bare, USUAL)
    assert (fault is None) == (words is None)
    assert fault is None or (words in fault.message and fault.remedy)


STATIC = files()._replace(files={CDI_FILE: SPEC})


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (EMPTY, EMPTY, None),
        (STATIC, STATIC, None),
        (EMPTY, STATIC, CDI_FILE),
        (EMPTY, EMPTY._replace(files={CHECKPOINTS[0]: checkpoint(CDI_NAME)}), "prepared"),
        (EMPTY, EMPTY._replace(files={CHECKPOINTS[0]: checkpoint(CDI_NAME, uid="other")}), None),
    ],
)
def test_nothing_of_a_claim_is_left_after_its_pod(before, after, words):
    fault = accept.release_fault(UID, EDITS, before, after)
    assert (fault is None) == (words is None)
    assert fault is None or (words in fault.message and fault.remedy)


def run_script(container, **replaced):
    """Run the script of a container in this process's own file system, with some texts replaced."""
    [shell, flag, script] = container["command"]
    for old, new in replaced.items():
        script = script.replace(f"/{old}", str(new))
    environment = {variable["name"]: variable["value"] for variable in container["env"]} | {"PATH": "/usr/bin:/bin"}
    arguments = [shell, flag, script, *container.get("args", ())]
    return subprocess.run(arguments, env=environment, capture_output=True, text=True, check=True, timeout=60).stdout


def test_the_reader_follows_links_as_the_host_does(tmp_path):
    (tmp_path / "run/cdi").mkdir(parents=True)
    (tmp_path / "var/lib/kubelet").mkdir(parents=True)
    (tmp_path / "var/run").symlink_to("/run")
    (tmp_path / "run/cdi/vendor.yaml").write_text("kind: a\nlast line")
    (tmp_path / "run/cdi/ignored.txt").write_text("kind: b")
    (tmp_path / "var/lib/kubelet/dra_manager_state").write_text("{}\n")
    (tmp_path / "lib.so").write_text("")
    (tmp_path / "run/link.so").symlink_to("../../../lib.so")
    (tmp_path / "run/broken.so").symlink_to("/absent.so")
    (tmp_path / "run/loop").symlink_to("loop")
    paths = ["/var/run/link.so", "/var/run/../lib.so", "/run/broken.so", "/run/loop", "/a b"]
    pod = accept_pods.reader_pod("r", "n0", "image", paths)
    log = run_script(pod["spec"]["containers"][0], host=tmp_path)
    assert accept_pods.is_complete(log)
    read = accept_pods.node_files(log)
    assert read.files == {"/run/cdi/vendor.yaml": "kind: a\nlast line", CHECKPOINTS[0]: "{}"}
    assert read.missing == {"/run/broken.so", "/run/loop", "/a b"}
    assert "/dev/null" in read.devices


def test_a_container_prints_what_it_sees():
    [claimed, bare] = accept_pods.device_pod("d", "c", "n0", "image", "nvidia")["spec"]["containers"]
    assert bare.get("resources") is None
    log = run_script(
        claimed | {"command": [*claimed["command"][:2], claimed["command"][2].replace("exec sleep", ": ")]}
    )
    view = accept_pods.container_view(log)
    assert {"/dev/null"} <= view.devices
    assert {"NVIDIA_VISIBLE_DEVICES=all"} <= view.environment
    assert {"/proc"} <= view.mounts


def test_a_log_without_its_last_line_is_not_complete():
    assert not accept_pods.is_complete("# devices\n /dev/null\n")


@pytest.mark.parametrize(("passed", "summary"), [(True, "all checks passed"), (False, "1 check failed")])
def test_the_table_has_each_check_with_its_result(passed, summary):
    check = accept.Check(
        node="n0",
        driver=DRIVER,
        device_class=DRIVER,
        product="A 100",
        check="start",
        passed=passed,
        message="m",
        remedy="r",
    )
    table = accept.report(accept.Acceptance(passed=passed, checks=(check,)))
    assert table.summary == summary
    [[node_name, devices, *_]] = table.parts[0].rows
    assert (node_name, devices) == ("n0", f"{DRIVER}: A 100")
