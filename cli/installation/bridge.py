"""The objects of the bridge, and what quotas at the door add to them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from cli.installation.placing import BRIDGE, NAMESPACE, PROMISES, QUOTA, adapt, listed, move_names, patches_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from webhook.state import Bridge

# Of the ways in which a scheduler asks the allocator, the one that is meant where nothing is said.
EXTENDER = "extender"
ELSEWHERES = "drawbridge-quota-tls"  # the Secret of the door of quotas where our authority keeps no certificates


def beside(namespace: str, image: str, scheduler_image: str, way: str = EXTENDER) -> Iterable[dict[str, Any]]:
    """What the bridge adds, as its kustomize component would print it for this namespace and these images."""
    from cluster import manifests

    place = BRIDGE / "apart" if way == "apart" else BRIDGE
    files = listed(BRIDGE / "common")
    files += listed(place)
    patches = [one.object for one in manifests.read(patches_of(BRIDGE / "plugin"))] if way == "plugin" else []
    for document in manifests.read(files):
        obj = document.object
        for patch in patches:
            if _same(obj, patch):
                _merge(obj, patch)
        adapt(obj, namespace, image, "", ())
        _name_image(obj, scheduler_image)
        move_names(obj, namespace)
        yield obj


def at_the_door(
    bridges: Iterable[dict[str, Any]], namespace: str, api_servers: tuple[str, ...] = (), secret: str = ""
) -> Iterable[dict[str, Any]]:
    """What quotas add that API servers ask about, as their kustomize component would print it; the allocator's Deployment is changed.

    `secret` names the Secret with its certificate, where that is not the one that our authority keeps.
    """
    from cluster import manifests

    _change(bridges, QUOTA, namespace, secret)
    for document in manifests.read(listed(QUOTA)):
        yield adapt(document.object, namespace, "", "", api_servers)


def promising(objects: Iterable[dict[str, Any]], namespace: str, secret: str = "") -> Iterable[dict[str, Any]]:
    """What is added where audit agents see the bridge's promises, as the kustomize component would print it; allocator and agent are changed.

    `secret` is as above: it is one certificate that the allocator shows at its doors.
    """
    from cluster import manifests

    _change(objects, PROMISES, namespace, secret)
    for document in manifests.read(listed(PROMISES)):
        yield adapt(_moved(document.object, namespace), namespace, "", "", ())


def _change(objects: Iterable[dict[str, Any]], folder: Path, namespace: str, secret: str) -> None:
    """Patch what a component patches, and have its door show what stands in another Secret."""
    from cluster import manifests
    from cluster.patch import apply_json_patch

    kustomization, *_ = manifests.read([folder / "kustomization.yaml"])
    patches = {
        (one["target"]["kind"], one["target"]["name"]): json.loads(one["patch"])
        for one in kustomization.object["patches"]
    }
    for obj in objects:
        operations = patches.get((obj["kind"], obj["metadata"]["name"]))
        if operations is not None:
            patched = apply_json_patch(obj, _moved(operations, namespace))
            obj.update(patched)
            if secret:
                _mount(obj, folder.name, secret)


def _moved(value: Any, namespace: str) -> Any:
    """Have what is said of our namespace, and of the one beside it, said of another."""
    return json.loads(json.dumps(value).replace(NAMESPACE, namespace))


def fences(bridge: Bridge | None) -> Iterable[dict[str, Any]]:
    """The taints that keep managed devices for the bridge, if the configuration wants them kept."""
    from webhook.claims import taint_rule

    return [taint_rule(driver) for driver in bridge.drivers] if bridge is not None and bridge.fence else []


def _mount(workload: dict[str, Any], door: str, secret: str) -> None:
    """Have a door show what stands in another Secret."""
    pod = workload["spec"]["template"]["spec"]
    for volume in pod["volumes"]:
        if volume["name"] == door and "secret" in volume:
            volume["secret"]["secretName"] = secret


def _same(obj: dict[str, Any], other: dict[str, Any]) -> bool:
    return (obj["kind"], obj["metadata"]["name"]) == (other["kind"], other["metadata"]["name"])


def _merge(obj: dict[str, Any], patch: dict[str, Any]) -> None:
    """Put a patch into an object as kustomize does: members of a list that have the same name are one."""
    for key, value in patch.items():
        there = obj.get(key)
        match there, value:
            case dict(), dict():
                _merge(there, value)
            case list(), [dict(), *_]:
                _merge_members(there, value)
            case _:
                obj[key] = value


def _merge_members(there: list[dict[str, Any]], patches: list[dict[str, Any]]) -> None:
    for patch in patches:
        known = [one for one in there if one["name"] == patch["name"]]
        if known:
            _merge(known[0], patch)
        else:
            there.append(patch)


def _name_image(obj: dict[str, Any], scheduler_image: str) -> None:
    if obj["kind"] != "Deployment":
        return
    template = obj["spec"]["template"]
    for container in template["spec"]["containers"]:
        if container["name"] == "scheduler":
            container["image"] = scheduler_image
