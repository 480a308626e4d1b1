"""RuntimeClasses, and the node selector and tolerations that the API server merges into their pods.

Follows Kubernetes' plugin/pkg/admission/runtimeclass.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from dra.raw import Object, inside, items, mapping, text

if TYPE_CHECKING:
    from collections.abc import Iterable


class RuntimeClass(msgspec.Struct, frozen=True, kw_only=True):
    handler: str
    node_selector: Mapping[str, Any] = {}
    tolerations: tuple[Object, ...] = ()

    def schedule(self, spec: Object) -> tuple[Object, str]:
        """Return the changed fields of a pod's spec, or the label on which the pod and the class disagree."""
        selector, tolerations = mapping(spec.get("nodeSelector")), items(spec, "tolerations")
        for key, value in self.node_selector.items():
            if selector.get(key, value) != value:
                return {}, key
        added = [toleration for toleration in self.tolerations if toleration not in tolerations]
        changed: Object = {}
        if not self.node_selector.keys() <= selector.keys():
            changed["nodeSelector"] = {**self.node_selector, **selector}
        if added:
            changed["tolerations"] = [*tolerations, *added]
        return changed, ""


def runtime_classes(objects: Iterable[Object]) -> dict[str, RuntimeClass]:
    classes: dict[str, RuntimeClass] = {}
    for obj in objects:
        name = text(inside(obj, "metadata").get("name"))
        if obj.get("kind") == "RuntimeClass" and name:
            scheduling = inside(obj, "scheduling")
            classes[name] = RuntimeClass(
                handler=text(obj.get("handler")),
                node_selector=inside(scheduling, "nodeSelector"),
                tolerations=tuple(items(scheduling, "tolerations")),
            )
    return classes
