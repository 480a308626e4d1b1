"""Manifests for the tests of `drawbridge translate`."""

from cluster import manifests
from tests.webhook.pods import pod


def yaml_of(*objects: dict) -> str:
    return manifests.dump(list(objects))


def complete_pod(obj: dict, **metadata) -> dict:
    """The pod with its apiVersion, its kind and more metadata."""
    return {"apiVersion": "v1", "kind": "Pod", **obj, "metadata": {**obj["metadata"], **metadata}}


# A pod that requests a share of a GPU.
SHARE_POD = complete_pod(pod({"nvidia.com/gpumem": 1000}))
CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"on": "yes"}}
# A fleet whose only device has a taint.
TAINTED_FLEET = """apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu.nvidia.com}
spec:
  extendedResourceName: nvidia.com/gpu
  selectors: [{cel: {expression: "device.driver == 'gpu.nvidia.com'"}}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: s}
spec:
  driver: gpu.nvidia.com
  nodeName: n1
  pool: {name: n1, generation: 1, resourceSliceCount: 1}
  devices:
  - name: gpu-0
    attributes: {type: {string: gpu}}
    taints: [{key: example.com/broken, effect: NoSchedule}]
---
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {allocatable: {cpu: "4", pods: "10"}}
"""
