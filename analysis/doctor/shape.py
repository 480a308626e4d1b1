"""The shape of an installation's objects in a dump. Objects of another shape are reported before any rule runs."""

from __future__ import annotations

import msgspec

from cluster.objects import Lease, Namespace


class _Part(msgspec.Struct, frozen=True, rename="camel"):
    """A part of an object, as the API server would have stored it."""


class _DumpedMetadata(_Part, frozen=True):
    name: str
    namespace: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    deletion_timestamp: str = ""


class Shape(_Part, frozen=True):
    """Any object."""

    metadata: _DumpedMetadata


class _Labels(_Part, frozen=True):
    labels: dict[str, str] = {}


class _DumpedContainer(_Part, frozen=True):
    name: str
    image: str = ""


class _Containers(_Part, frozen=True):
    containers: list[_DumpedContainer] = []


class _Template(_Part, frozen=True):
    metadata: _Labels = _Labels()
    spec: _Containers = _Containers()


class _DumpedWorkloadSpec(_Part, frozen=True):
    replicas: int = 1
    template: _Template = _Template()


class _DumpedCondition(_Part, frozen=True):
    type: str
    status: str
    message: str = ""


class _WorkloadStatus(_Part, frozen=True):
    observed_generation: int = 0
    ready_replicas: int = 0
    unavailable_replicas: int = 0
    number_ready: int = 0
    desired_number_scheduled: int = 0
    conditions: list[_DumpedCondition] = []


class _Workload(Shape, frozen=True):
    spec: _DumpedWorkloadSpec
    status: _WorkloadStatus = _WorkloadStatus()


class _StateReason(_Part, frozen=True):
    reason: str = ""
    message: str = ""


class _State(_Part, frozen=True):
    waiting: _StateReason = _StateReason()
    terminated: _StateReason = _StateReason()


class _ContainerStatus(_Part, frozen=True):
    name: str
    state: _State = _State()
    last_state: _State = _State()


class _DumpedPodStatus(_Part, frozen=True):
    conditions: list[_DumpedCondition] = []
    container_statuses: list[_ContainerStatus] = []


class _DumpedPod(Shape, frozen=True):
    status: _DumpedPodStatus = _DumpedPodStatus()


class _DumpedConfigMap(Shape, frozen=True):
    data: dict[str, str] = {}


class _DumpedSecret(Shape, frozen=True):
    data: dict[str, bytes] = {}  # msgspec reads base64


class _Service(_Part, frozen=True):
    namespace: str
    name: str


class _DumpedClient(_Part, frozen=True):
    url: str = ""
    ca_bundle: bytes = b""
    service: _Service | None = None


class _DumpedMatchCondition(_Part, frozen=True):
    expression: str


class _Webhook(_Part, frozen=True):
    name: str
    client_config: _DumpedClient
    match_conditions: list[_DumpedMatchCondition] = []


class _DumpedRegistration(Shape, frozen=True):
    webhooks: list[_Webhook] = []


SHAPES: dict[str, type[Shape | Namespace | Lease]] = {
    "Deployment": _Workload,
    "DaemonSet": _Workload,
    "Pod": _DumpedPod,
    "Namespace": Namespace,
    "Lease": Lease,
    "ConfigMap": _DumpedConfigMap,
    "Secret": _DumpedSecret,
    "MutatingWebhookConfiguration": _DumpedRegistration,
    "ValidatingWebhookConfiguration": _DumpedRegistration,
}
