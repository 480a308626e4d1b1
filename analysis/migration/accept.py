"""Checks whether the DRA drivers of a node serve pods, for `drawbridge migrate accept`. Run it before workloads move and after driver updates."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from analysis.gitops import parsed
from analysis.migration.accept_pods import CDI_FOLDERS, CHECKPOINTS
from analysis.report import Marked, Report, Rows, Why
from dra import cel
from dra.errors import SelectorError
from dra.raw import inside, items, strings, text
from dra.texts import count_of, joined, list_first
from webhook.placement import group_nodes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from analysis.loading import Reading
    from analysis.migration.accept_pods import ContainerView, HostFiles
    from cluster.objects import Event
    from dra.raw import Object
    from dra.stock import Stock

CheckName = Literal["devices", "offered once", "start", "CDI files", "isolation", "release"]
_PRODUCTS = ("productName", "model")
# Claims for these drivers need parameters of an object that their controller creates.
_NOT_ALONE = frozenset(("compute-domain.nvidia.com",))
_NAMED = 3
_PLACED_SECONDS, _STARTED_SECONDS = 30, 120  # waiting time for the scheduler, and for the node
_NO_IMAGE = frozenset(("ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName"))
_NOT_STARTED = frozenset(
    ("CreateContainerError", "RunContainerError", "CreateContainerConfigError", "CrashLoopBackOff")
)
_UNPREPARED = "FailedPrepareDynamicResources"  # the reason of the kubelet's event

_DRIVER_ROOT = "set the folder of the GPU driver in the values of the driver's chart: /usr/local on Talos Linux, `nvidiaDriverRoot` in NVIDIA's chart"
_CDI_OFF = "switch CDI on in the container runtime (`enable_cdi = true` in containerd's configuration) and restart it"
_CDI_FOLDER = "set the driver's folder for CDI files to one that the container runtime reads (`cdi_spec_dirs` in containerd's configuration)"
_ENVIRONMENT = "set `accept-nvidia-visible-devices-envvar-when-unprivileged = false` in the configuration of NVIDIA's container runtime"
_IMAGE = "name an image with --image that the node has or can pull, with sh, echo, env, readlink, sed and sleep"


class Kind(NamedTuple):
    """Devices of one class, driver and product, which one claim can request. `attribute` has the product."""

    device_class: str
    driver: str
    product: str = ""
    attribute: str = ""


class Check(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The result of one check. Without a driver, the check is about the whole node."""

    node: str
    device_class: str = ""
    driver: str = ""
    product: str = ""
    check: CheckName
    passed: bool
    message: str
    remedy: str = ""


class Acceptance(msgspec.Struct, frozen=True, kw_only=True):
    """The results of all checks."""

    passed: bool
    checks: tuple[Check, ...]


class CdiEdits(NamedTuple):
    """The container edits of a claim's CDI devices, and the host paths that they need, each with its CDI file."""

    devices: frozenset[str]
    environment: frozenset[str]
    mounts: frozenset[str]
    host_paths: Mapping[str, str]
    files: frozenset[str]  # the CDI files that define the devices
    undefined: tuple[str, ...]  # CDI devices that no file defines

    def is_empty(self) -> bool:
        return not (self.devices or self.environment or self.mounts)


class DriverFault(NamedTuple):
    """A message and its remedy."""

    message: str
    remedy: str = ""


def kinds_of(node: str, stock: Stock) -> list[Kind]:
    """Return the kinds of devices that drivers publish on a node and that a DeviceClass selects."""
    selectors = {
        name: [cel.compile_or_none(selector.cel.expression) for selector in class_.spec.selectors if selector.cel]
        for name, class_ in stock.classes.items()
    }
    kinds: dict[Kind, None] = {}
    for pool in stock.pools(node):
        driver = pool.id[0]
        for device in (device for page in pool.accessible for device in page.devices if driver not in _NOT_ALONE):
            view = cel.view_of(driver, device)
            attribute = next((name for name in _PRODUCTS if device.own_text(driver, name)), "")
            product = device.own_text(driver, attribute) if attribute else ""
            for name, compiled in selectors.items():
                with suppress(SelectorError):
                    if all(selector is not None and selector.matches(view) for selector in compiled):
                        kinds[Kind(name, driver, product, attribute)] = None
    return sorted(kinds)


def check_offers(node: str, kinds: Sequence[Kind], reading: Reading) -> Iterator[Check]:
    """Check that drivers publish devices on the node, and that no device plugin offers the same devices."""
    all_devices = Kind("", "")
    if node not in reading.stock.nodes:
        yield result(node, all_devices, "devices", DriverFault("the cluster has no such node"))
        return
    if not kinds:
        fault = DriverFault(
            "no DRA driver publishes a device that a DeviceClass selects",
            f"read the log of the driver's pod on this node; if it does not find the GPU driver, {_DRIVER_ROOT}",
        )
        yield result(node, all_devices, "devices", fault)
        return
    drivers = sorted({kind.driver for kind in kinds})
    yield result(node, all_devices, "devices", None, f"published by {', '.join(drivers)}")
    state = reading.state
    groups = group_nodes([reading.stock.nodes[node]], state.fleet, state.configuration)
    keys = [group.key for group in groups if group.both]
    still_offered = DriverFault(
        f"a device plugin still offers {', '.join(keys)} for devices that a driver publishes",
        "remove the device plugin from this node, and wait until status.allocatable has 0 of the key",
    )
    message = "no device plugin offers these devices"
    yield result(node, all_devices, "offered once", still_offered if keys else None, message)


def result(
    node: str, kind: Kind, check: CheckName, fault: DriverFault | None, message: str = "", *, runtime_class: str = ""
) -> Check:
    """Return the result of a check. `message` describes a passed check; the result adds the runtime class of its pod."""
    said = fault or DriverFault(message)
    return Check(
        node=node,
        device_class=kind.device_class,
        driver=kind.driver,
        product=kind.product,
        check=check,
        passed=fault is None,
        message=joined(f"with runtimeClassName {runtime_class}" if runtime_class else "", said.message),
        remedy=said.remedy,
    )


def start_fault(pod: Object, events: Iterable[Event], waited: float) -> DriverFault | None:
    """Return why a pod does not start; None if it may still start."""
    for status in items(inside(pod, "status"), "containerStatuses"):
        waiting = inside(status, "state", "waiting")
        reason, message = text(waiting.get("reason")), text(waiting.get("message"))
        if reason in _NO_IMAGE:
            return DriverFault(f"the image is not available: {message}", _IMAGE)
        if reason in _NOT_STARTED:
            ended = inside(status, "lastState", "terminated")
            return _runtime_fault(text(ended.get("message")) or message or reason)
    status = inside(pod, "status")
    if status.get("phase") == "Failed":
        message = text(status.get("message")) or text(status.get("reason")) or "a container has ended with an error"
        return DriverFault(f"the pod has failed: {message}", _IMAGE)
    warnings = [event for event in events if event.type == "Warning"]
    prepare = [event for event in warnings if event.reason == _UNPREPARED]
    if prepare and (waited > _STARTED_SECONDS / 2 or sum(max(event.count, 1) for event in prepare) > 1):
        return DriverFault(
            f"the driver does not prepare the claim: {prepare[-1].message}",
            "restart the driver's pod on this node and read its log: the kubelet calls the driver through a socket in its plugins folder",
        )
    scheduled = [
        condition
        for condition in items(inside(pod, "status"), "conditions")
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False"
    ]
    if scheduled and waited > _PLACED_SECONDS:
        return DriverFault(
            f"the scheduler does not place the pod: {text(scheduled[0].get('message'))}",
            "the check needs one free device of this kind: end a pod that holds one, or untaint the device",
        )
    if waited > _STARTED_SECONDS:
        last = warnings[-1].message if warnings else "the kubelet reports no event"
        return DriverFault(
            f"the pod has not started after {_STARTED_SECONDS} s: {last}", "read the kubelet's log on this node"
        )
    return None


def _runtime_fault(message: str) -> DriverFault:
    if "CDI support is explicitly disabled" in message:
        return DriverFault(f"CDI is off in the container runtime: {message}", _CDI_OFF)
    if "unresolvable CDI device" in message:
        return DriverFault(f"the container runtime does not find the claim's CDI file: {message}", _CDI_FOLDER)
    return DriverFault(f"the container does not start: {message}", "see the check of the CDI files")


def cdi_devices(claim_uid: str, read: HostFiles) -> list[str] | None:
    """Return the CDI devices that the driver returned to the kubelet for a claim; None if the kubelet has not prepared the claim."""
    for name in CHECKPOINTS:
        with suppress(msgspec.DecodeError, KeyError, TypeError):
            data = msgspec.json.decode(msgspec.json.decode(read.files.get(name, ""))["Data"])
            for claim in data["ClaimInfoStateList"] or ():
                if claim["ClaimUID"] == claim_uid:
                    devices = [device for state in claim["DriverState"].values() for device in state["Devices"] or ()]
                    return [name for device in devices for name in device["CDIDeviceIDs"] or ()]
    return None


def edits_of(cdi_names: Iterable[str], read: HostFiles) -> CdiEdits:
    """Return the container edits of CDI devices, from the node's CDI files."""
    wanted = dict.fromkeys(cdi_names)
    devices, environment, mounts = set[str](), set[str](), set[str]()
    host_paths: dict[str, str] = {}
    defined, files = set[str](), set[str]()
    for file, content in read.files.items():
        spec = parsed(content)
        kind = text(spec.get("kind"))
        used = [device for device in items(spec, "devices") if f"{kind}={text(device.get('name'))}" in wanted]
        defined.update(f"{kind}={text(device.get('name'))}" for device in used)
        files.update([file] if used else ())
        for edits in [inside(part, "containerEdits") for part in ([spec, *used] if used else ())]:
            nodes, mounted = items(edits, "deviceNodes"), items(edits, "mounts")
            devices.update(text(node.get("path")) for node in nodes)
            mounts.update(text(mount.get("containerPath")) for mount in mounted)
            environment.update(strings(edits, "env"))
            paths = [text(node.get("hostPath")) or text(node.get("path")) for node in nodes]
            paths += [text(mount.get("hostPath")) for mount in mounted]
            paths += [text(hook.get("path")) for hook in items(edits, "hooks")]
            host_paths.update(dict.fromkeys([path for path in paths if path.startswith("/")], file))
    undefined = tuple(name for name in wanted if name not in defined)
    return CdiEdits(
        frozenset(devices), frozenset(environment), frozenset(mounts), host_paths, frozenset(files), undefined
    )


def files_fault(cdi_names: Sequence[str] | None, edits: CdiEdits, missing: frozenset[str]) -> DriverFault | None:
    """Return the fault in the CDI files of a prepared claim; None if there is none."""
    if cdi_names is None:
        return DriverFault(
            f"the kubelet does not list the claim as prepared in {CHECKPOINTS[0]}",
            "read the kubelet's log on this node",
        )
    if edits.undefined:
        folders = ", ".join(CDI_FOLDERS)
        return DriverFault(f"no CDI file in {folders} defines {', '.join(edits.undefined)}", _CDI_FOLDER)
    absent = [f"{path} (in {edits.host_paths[path]})" for path in sorted(missing & edits.host_paths.keys())]
    if absent:
        return DriverFault(
            f"{count_of(len(absent), 'host path')} of the CDI files missing on the node: {list_first(absent, _NAMED)}",
            _DRIVER_ROOT,
        )
    return None


def isolation_fault(
    edits: CdiEdits, claimed: ContainerView, bare: ContainerView, usual: frozenset[str]
) -> DriverFault | None:
    """Return how the devices in the containers differ from the claim; None if they do not.

    `usual` are the device nodes that every container has. A driver without CDI adds device nodes in another way, which is not checked.
    """
    sees_any = (
        edits.devices & claimed.devices or edits.environment & claimed.environment or edits.mounts & claimed.mounts
    )
    if not edits.is_empty() and not sees_any:
        return DriverFault(
            "CDI is off in the container runtime: the container has nothing that the claim's CDI devices add", _CDI_OFF
        )
    if absent := sorted(edits.devices - claimed.devices):
        return DriverFault(f"the container lacks device nodes of its claim: {list_first(absent, _NAMED)}", _CDI_OFF)
    if extra := sorted(bare.devices - usual):
        return DriverFault(f"a container without a claim sees device nodes: {list_first(extra, _NAMED)}", _ENVIRONMENT)
    extra = sorted(claimed.devices - usual - edits.devices)
    if extra and not edits.is_empty():
        return DriverFault(
            f"the container sees device nodes that are not of its claim: {list_first(extra, _NAMED)}", _ENVIRONMENT
        )
    return None


def release_fault(claim_uid: str, edits: CdiEdits, before: HostFiles, after: HostFiles) -> DriverFault | None:
    """Return the fault if something of a claim remains after its pod ended, else None. Files that existed before the claim may stay."""
    left = sorted((edits.files & after.files.keys()) - before.files.keys())
    if left:
        return DriverFault(
            f"CDI files of the claim are left: {list_first(left, _NAMED)}", "update the driver, and delete these files"
        )
    if cdi_devices(claim_uid, after) is not None:
        return DriverFault(
            "the kubelet still lists the claim as prepared", "read the log of the driver's pod on this node"
        )
    return None


def stuck_fault(kind: str, name: str) -> DriverFault:
    """Return the fault for an object whose deletion does not finish: the driver does not unprepare the claim."""
    return DriverFault(
        f"{kind} {name} is not deleted", "read the log of the driver's pod on this node: it has to release the claim"
    )


def report(acceptance: Acceptance) -> Report:
    """Make the text table."""
    rows = [
        (
            check.node,
            joined(check.device_class, check.driver if check.driver != check.device_class else "", check.product),
            check.check,
            Marked("pass" if check.passed else "fail"),
            Why(check.message, check.remedy),
        )
        for check in acceptance.checks
    ]
    failed = sum(not check.passed for check in acceptance.checks)
    summary = f"{count_of(failed, 'check')} failed" if failed else "all checks passed"
    return Report("drawbridge migrate accept", (Rows(("Node", "Devices", "Check", "Result", "Why"), rows),), summary)
