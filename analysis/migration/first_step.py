"""The first step that needs no edit of a consumer: DeviceClasses that serve the keys of device plugins by name.

Follows kubernetes/kubernetes v1.37: pkg/scheduler/framework/plugins/dynamicresources/extendeddynamicresources.go. On a node with more than 0 allocatable
of a key, the device plugin serves the pods that request it, and a driver on all other nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from analysis.migration.chart_versions import minor_version
from analysis.migration.charts import DRIVERS
from analysis.migration.layout import Changes, TreeLayout
from analysis.migration.plan import FirstStep
from analysis.migration.platform import FIRST_MINOR
from dra.server import EXTENDED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from analysis.gitops import Release, Tree
    from analysis.migration.plan import DeviceSharing, FirstStepState, MigrationPlan
    from analysis.migration.pull_request import Step
    from analysis.migration.sharing import ReadTree
    from cluster.manifests import Document
    from dra.raw import Object

_STATES: Final[dict[FirstStepState, str]] = {
    "in force": "a DeviceClass serves the key, so these consumers keep it, and get devices of the driver without an edit",
    "prepare": "merge `prepare` of `migrate pr` first: with its DeviceClass, these consumers keep the key, and need no edit",
    "gate": f"with the gate {EXTENDED} in API server, scheduler, controller manager and kubelet, a DeviceClass serves the key without an edit of these consumers",
    "unknown version": f"on Kubernetes 1.36 and newer (before, with the gate {EXTENDED}), a DeviceClass serves the key without an edit of these consumers",
}
_LIMITS: Final = (
    "it serves whole devices to pods of kube-scheduler: no shares, and no MIG devices; while plugin and driver run on one node, both can allocate "
    "one device; while the plugin runs, a pod with this key and a claim of its own may not start; to go back, delete the DeviceClass"
)


def first_step_of(
    driver: str, sharing: DeviceSharing | None, read: ReadTree, installed: Release | None
) -> FirstStep | None:
    """Return the first step for a driver's consumers that need an edit by hand; None if it would serve none of them.

    `installed` is the tree's release that installs the driver.
    """
    chart, platform = DRIVERS.get(driver), read.platform
    served = [
        request.consumer
        for request in read.requests
        if request.consumer.verdict == "by hand" and chart is not None and request.consumer.key in chart.by_name
        if request.consumer.drivers == (driver,) and not request.has_other_scheduler
    ]
    # Replicas of a device are no whole devices.
    if chart is None or not served or sharing is not None or 0 < platform.minor < FIRST_MINOR:
        return None
    keys = tuple(sorted({consumer.key for consumer in served}))
    is_old = installed is not None and minor_version(installed.version) < minor_version(chart.version)
    from_chart = chart.has_named_class and not is_old
    missing = [key for key in keys if key not in read.named_classes and not from_chart]
    state: FirstStepState = "prepare" if missing else "in force"
    if not platform.serves_names:
        state = "gate" if platform.minor else "unknown version"
    return FirstStep(
        keys=keys,
        objects=tuple(dict.fromkeys(consumer.object for consumer in served)),
        state=state,
        what=_STATES[state],
        limits=_LIMITS,
        device_classes=tuple(_device_class(key, chart.by_name[key]) for key in missing),
    )


def _device_class(key: str, selector: str) -> Object:
    domain, _, name = key.partition("/")
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": f"{name}.{domain}"},
        "spec": {"selectors": [{"cel": {"expression": selector}}], "extendedResourceName": key},
    }


def add_device_classes(documents: Sequence[Document], tree: Tree, plan: MigrationPlan) -> Step:
    """Return the step that adds the DeviceClasses, beside the first consumer that a build includes."""
    changes = Changes(TreeLayout(documents, tree))
    for family in plan.families:
        step = family.first_step
        if step is None or step.state != "prepare":
            continue
        of_consumers = {consumer.file for consumer in plan.consumers if consumer.object in step.objects}
        built = [number for number in sorted(tree.reached) if documents[number].file in of_consumers]
        for obj in step.device_classes:
            if built:
                changes.add_beside(built[0], obj)
            else:
                changes.notes.append(
                    f"by hand: apply the DeviceClass {obj['metadata']['name']} of the plan (`firstStep`)"
                )
    return changes.step("prepare", documents)
