"""Every field of pods and of the built-in kinds with a pod template, with its type, as the API server decodes them.

The wire types (`dra.objects`) have only the fields that matter for devices. This table has all fields, so that a misspelt field can be
reported, which the API server would drop. The table is made from the OpenAPI document of the newest supported Kubernetes
(`tests.dra.validation.openapi` writes it, and a test compares it with a real server). `_OLDER` has the fields that only older supported
versions have.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from dra.objects import ObjectMeta
from dra.validation.fields import shape

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dra.finding import Finding

# The types and their fields. `[x]` is a list of x, and `{x}` a mapping to x. `any` is not judged by this table.
TABLE: Final = """
AWSElasticBlockStoreVolumeSource = fsType:text, partition:int32, readOnly:flag, volumeID:text
Affinity = nodeAffinity:NodeAffinity, podAffinity:PodAffinity, podAntiAffinity:PodAntiAffinity
AppArmorProfile = localhostProfile:text, type:text
AzureDiskVolumeSource = cachingMode:text, diskName:text, diskURI:text, fsType:text, kind:text, readOnly:flag
AzureFileVolumeSource = readOnly:flag, secretName:text, shareName:text
CSIVolumeSource = driver:text, fsType:text, nodePublishSecretRef:LocalObjectReference, readOnly:flag,
    volumeAttributes:{text}
Capabilities = add:[text], drop:[text]
CephFSVolumeSource = monitors:[text], path:text, readOnly:flag, secretFile:text, secretRef:LocalObjectReference,
    user:text
CinderVolumeSource = fsType:text, readOnly:flag, secretRef:LocalObjectReference, volumeID:text
ClusterTrustBundleProjection = labelSelector:LabelSelector, name:text, optional:flag, path:text, signerName:text,
    user:int64
ConfigMapEnvSource = name:text, optional:flag
ConfigMapKeySelector = key:text, name:text, optional:flag
ConfigMapProjection = items:[KeyToPath], name:text, optional:flag
ConfigMapVolumeSource = defaultMode:int32, defaultUser:int64, items:[KeyToPath], name:text, optional:flag
Container = args:[text], command:[text], env:[EnvVar], envFrom:[EnvFromSource], image:text, imagePullPolicy:text,
    lifecycle:Lifecycle, livenessProbe:Probe, name:text, ports:[ContainerPort], readinessProbe:Probe,
    resizePolicy:[ContainerResizePolicy], resources:ResourceRequirements, restartPolicy:text,
    restartPolicyRules:[ContainerRestartRule], securityContext:SecurityContext, startupProbe:Probe, stdin:flag,
    stdinOnce:flag, terminationMessagePath:text, terminationMessagePolicy:text, tty:flag,
    volumeDevices:[VolumeDevice], volumeMounts:[VolumeMount], workingDir:text
ContainerPort = containerPort:int32, hostIP:text, hostPort:int32, name:text, protocol:text
ContainerResizePolicy = resourceName:text, restartPolicy:text
ContainerRestartRule = action:text, exitCodes:ContainerRestartRuleOnExitCodes
ContainerRestartRuleOnExitCodes = operator:text, values:[int32]
CronJob = apiVersion:text, kind:text, metadata:any, spec:CronJobSpec, status:any
CronJobSpec = concurrencyPolicy:text, failedJobsHistoryLimit:int32, jobTemplate:JobTemplateSpec, schedule:text,
    startingDeadlineSeconds:int64, successfulJobsHistoryLimit:int32, suspend:flag, timeZone:text
DaemonSet = apiVersion:text, kind:text, metadata:any, spec:DaemonSetSpec, status:any
DaemonSetSpec = minReadySeconds:int32, revisionHistoryLimit:int32, selector:LabelSelector, template:PodTemplateSpec,
    updateStrategy:DaemonSetUpdateStrategy
DaemonSetUpdateStrategy = rollingUpdate:RollingUpdateDaemonSet, type:text
Deployment = apiVersion:text, kind:text, metadata:any, spec:DeploymentSpec, status:any
DeploymentSpec = minReadySeconds:int32, paused:flag, progressDeadlineSeconds:int32, replicas:int32,
    revisionHistoryLimit:int32, selector:LabelSelector, strategy:DeploymentStrategy, template:PodTemplateSpec
DeploymentStrategy = rollingUpdate:RollingUpdateDeployment, type:text
DownwardAPIProjection = items:[DownwardAPIVolumeFile]
DownwardAPIVolumeFile = fieldRef:ObjectFieldSelector, mode:int32, path:text, resourceFieldRef:ResourceFieldSelector,
    user:int64
DownwardAPIVolumeSource = defaultMode:int32, defaultUser:int64, items:[DownwardAPIVolumeFile]
EmptyDirVolumeSource = medium:text, mode:int32, sizeLimit:amount
EnvFromSource = configMapRef:ConfigMapEnvSource, prefix:text, secretRef:SecretEnvSource
EnvVar = name:text, value:text, valueFrom:EnvVarSource
EnvVarSource = configMapKeyRef:ConfigMapKeySelector, fieldRef:ObjectFieldSelector, fileKeyRef:FileKeySelector,
    resourceFieldRef:ResourceFieldSelector, secretKeyRef:SecretKeySelector
EphemeralContainer = args:[text], command:[text], env:[EnvVar], envFrom:[EnvFromSource], image:text,
    imagePullPolicy:text, lifecycle:Lifecycle, livenessProbe:Probe, name:text, ports:[ContainerPort],
    readinessProbe:Probe, resizePolicy:[ContainerResizePolicy], resources:ResourceRequirements, restartPolicy:text,
    restartPolicyRules:[ContainerRestartRule], securityContext:SecurityContext, startupProbe:Probe, stdin:flag,
    stdinOnce:flag, targetContainerName:text, terminationMessagePath:text, terminationMessagePolicy:text, tty:flag,
    volumeDevices:[VolumeDevice], volumeMounts:[VolumeMount], workingDir:text
EphemeralVolumeSource = volumeClaimTemplate:PersistentVolumeClaimTemplate
EvictionResponder = name:text, priority:int32
ExecAction = command:[text]
FCVolumeSource = fsType:text, lun:int32, readOnly:flag, targetWWNs:[text], wwids:[text]
FileKeySelector = key:text, optional:flag, path:text, volumeName:text
FlexVolumeSource = driver:text, fsType:text, options:{text}, readOnly:flag, secretRef:LocalObjectReference
FlockerVolumeSource = datasetName:text, datasetUUID:text
GCEPersistentDiskVolumeSource = fsType:text, partition:int32, pdName:text, readOnly:flag
GRPCAction = mode:text, port:int32, service:text
GitRepoVolumeSource = directory:text, repository:text, revision:text
GlusterfsVolumeSource = endpoints:text, path:text, readOnly:flag
HTTPGetAction = host:text, httpHeaders:[HTTPHeader], path:text, port:intOrText, protocol:text, scheme:text
HTTPHeader = name:text, value:text
HostAlias = hostnames:[text], ip:text
HostPathVolumeSource = path:text, type:text
ISCSIVolumeSource = chapAuthDiscovery:flag, chapAuthSession:flag, fsType:text, initiatorName:text, iqn:text,
    iscsiInterface:text, lun:int32, portals:[text], readOnly:flag, secretRef:LocalObjectReference, targetPortal:text
ImageVolumeSource = pullPolicy:text, reference:text
Job = apiVersion:text, kind:text, metadata:any, spec:JobSpec, status:any
JobSchedulingConfiguration = disruptionMode:WorkloadPodGroupDisruptionMode,
    resourceClaims:[WorkloadPodGroupResourceClaim], schedulingConstraints:WorkloadPodGroupSchedulingConstraints,
    schedulingPolicy:WorkloadPodGroupSchedulingPolicy
JobSpec = activeDeadlineSeconds:int64, backoffLimit:int32, backoffLimitPerIndex:int32, completionMode:text,
    completions:int32, managedBy:text, manualSelector:flag, maxFailedIndexes:int32, parallelism:int32,
    podFailurePolicy:PodFailurePolicy, podReplacementPolicy:text, scheduling:JobSchedulingConfiguration,
    selector:LabelSelector, successPolicy:SuccessPolicy, suspend:flag, template:PodTemplateSpec,
    ttlSecondsAfterFinished:int32
JobTemplateSpec = metadata:meta, spec:JobSpec
KeyToPath = key:text, mode:int32, path:text, user:int64
LabelSelector = matchExpressions:[LabelSelectorRequirement], matchLabels:{text}
LabelSelectorRequirement = key:text, operator:text, values:[text]
Lifecycle = postStart:LifecycleHandler, preStop:LifecycleHandler, stopSignal:text
LifecycleHandler = exec:ExecAction, httpGet:HTTPGetAction, sleep:SleepAction, tcpSocket:TCPSocketAction
LocalObjectReference = name:text
NFSVolumeSource = path:text, readOnly:flag, server:text
NodeAffinity = preferredDuringSchedulingIgnoredDuringExecution:[PreferredSchedulingTerm],
    requiredDuringSchedulingIgnoredDuringExecution:NodeSelector
NodeSelector = nodeSelectorTerms:[NodeSelectorTerm]
NodeSelectorRequirement = key:text, operator:text, values:[text]
NodeSelectorTerm = matchExpressions:[NodeSelectorRequirement], matchFields:[NodeSelectorRequirement]
ObjectFieldSelector = apiVersion:text, fieldPath:text
PersistentVolumeClaim = apiVersion:text, kind:text, metadata:meta, spec:PersistentVolumeClaimSpec, status:any
PersistentVolumeClaimSpec = accessModes:[text], dataSource:TypedLocalObjectReference,
    dataSourceRef:TypedObjectReference, resources:VolumeResourceRequirements, selector:LabelSelector,
    storageClassName:text, volumeAttributesClassName:text, volumeMode:text, volumeName:text
PersistentVolumeClaimTemplate = metadata:meta, spec:PersistentVolumeClaimSpec
PersistentVolumeClaimVolumeSource = claimName:text, readOnly:flag
PhotonPersistentDiskVolumeSource = fsType:text, pdID:text
Pod = apiVersion:text, kind:text, metadata:any, spec:PodSpec, status:any
PodAffinity = preferredDuringSchedulingIgnoredDuringExecution:[WeightedPodAffinityTerm],
    requiredDuringSchedulingIgnoredDuringExecution:[PodAffinityTerm]
PodAffinityTerm = labelSelector:LabelSelector, matchLabelKeys:[text], mismatchLabelKeys:[text],
    namespaceSelector:LabelSelector, namespaces:[text], topologyKey:text
PodAntiAffinity = preferredDuringSchedulingIgnoredDuringExecution:[WeightedPodAffinityTerm],
    requiredDuringSchedulingIgnoredDuringExecution:[PodAffinityTerm]
PodCertificateProjection = certificateChainPath:text, credentialBundlePath:text, keyPath:text, keyType:text,
    maxExpirationSeconds:int32, signerName:text, user:int64, userAnnotations:{text}
PodDNSConfig = nameservers:[text], options:[PodDNSConfigOption], searches:[text]
PodDNSConfigOption = name:text, value:text
PodFailurePolicy = rules:[PodFailurePolicyRule]
PodFailurePolicyOnExitCodesRequirement = containerName:text, operator:text, values:[int32]
PodFailurePolicyOnPodConditionsPattern = status:text, type:text
PodFailurePolicyRule = action:text, onExitCodes:PodFailurePolicyOnExitCodesRequirement,
    onPodConditions:[PodFailurePolicyOnPodConditionsPattern]
PodOS = name:text
PodReadinessGate = conditionType:text
PodResourceClaim = name:text, resourceClaimName:text, resourceClaimTemplateName:text
PodSchedulingGate = name:text
PodSchedulingGroup = podGroupName:text
PodSecurityContext = appArmorProfile:AppArmorProfile, fsGroup:int64, fsGroupChangePolicy:text, runAsGroup:int64,
    runAsNonRoot:flag, runAsUser:int64, seLinuxChangePolicy:text, seLinuxOptions:SELinuxOptions,
    seccompProfile:SeccompProfile, supplementalGroups:[int64], supplementalGroupsPolicy:text, sysctls:[Sysctl],
    windowsOptions:WindowsSecurityContextOptions
PodSpec = activeDeadlineSeconds:int64, affinity:Affinity, automountServiceAccountToken:flag, containers:[Container],
    dnsConfig:PodDNSConfig, dnsPolicy:text, enableServiceLinks:flag, ephemeralContainers:[EphemeralContainer],
    evictionResponders:[EvictionResponder], hostAliases:[HostAlias], hostIPC:flag, hostNetwork:flag, hostPID:flag,
    hostUsers:flag, hostname:text, hostnameOverride:text, imagePullSecrets:[LocalObjectReference],
    initContainers:[Container], nodeName:text, nodeSelector:{text}, os:PodOS, overhead:{amount},
    preemptionPolicy:text, priority:int32, priorityClassName:text, readinessGates:[PodReadinessGate],
    resourceClaims:[PodResourceClaim], resources:ResourceRequirements, restartPolicy:text, runtimeClassName:text,
    schedulerName:text, schedulingGates:[PodSchedulingGate], schedulingGroup:PodSchedulingGroup,
    securityContext:PodSecurityContext, serviceAccount:text, serviceAccountName:text, setHostnameAsFQDN:flag,
    shareProcessNamespace:flag, subdomain:text, terminationGracePeriodSeconds:int64, tolerations:[Toleration],
    topologySpreadConstraints:[TopologySpreadConstraint], volumes:[Volume]
PodTemplate = apiVersion:text, kind:text, metadata:any, template:PodTemplateSpec
PodTemplateSpec = metadata:any, spec:PodSpec
PortworxVolumeSource = fsType:text, readOnly:flag, volumeID:text
PreferredSchedulingTerm = preference:NodeSelectorTerm, weight:int32
Probe = exec:ExecAction, failureThreshold:int32, grpc:GRPCAction, httpGet:HTTPGetAction, initialDelaySeconds:int32,
    periodSeconds:int32, successThreshold:int32, tcpSocket:TCPSocketAction, terminationGracePeriodSeconds:int64,
    timeoutSeconds:int32
ProjectedVolumeSource = defaultMode:int32, defaultUser:int64, sources:[VolumeProjection]
QuobyteVolumeSource = group:text, readOnly:flag, registry:text, tenant:text, user:text, volume:text
RBDVolumeSource = fsType:text, image:text, keyring:text, monitors:[text], pool:text, readOnly:flag,
    secretRef:LocalObjectReference, user:text
ReplicaSet = apiVersion:text, kind:text, metadata:any, spec:ReplicaSetSpec, status:any
ReplicaSetSpec = minReadySeconds:int32, replicas:int32, selector:LabelSelector, template:PodTemplateSpec
ReplicationController = apiVersion:text, kind:text, metadata:any, spec:ReplicationControllerSpec, status:any
ReplicationControllerSpec = minReadySeconds:int32, replicas:int32, selector:{text}, template:PodTemplateSpec
ResourceClaim = name:text, request:text
ResourceFieldSelector = containerName:text, divisor:amount, resource:text
ResourceRequirements = claims:[ResourceClaim], limits:{amount}, requests:{amount}
RollingUpdateDaemonSet = maxSurge:intOrText, maxUnavailable:intOrText
RollingUpdateDeployment = maxSurge:intOrText, maxUnavailable:intOrText
RollingUpdateStatefulSetStrategy = maxUnavailable:intOrText, partition:int32
SELinuxOptions = level:text, role:text, type:text, user:text
ScaleIOVolumeSource = fsType:text, gateway:text, protectionDomain:text, readOnly:flag, secretRef:LocalObjectReference,
    sslEnabled:flag, storageMode:text, storagePool:text, system:text, volumeName:text
SeccompProfile = localhostProfile:text, type:text
SecretEnvSource = name:text, optional:flag
SecretKeySelector = key:text, name:text, optional:flag
SecretProjection = items:[KeyToPath], name:text, optional:flag
SecretVolumeSource = defaultMode:int32, defaultUser:int64, items:[KeyToPath], optional:flag, secretName:text
SecurityContext = allowPrivilegeEscalation:flag, appArmorProfile:AppArmorProfile, capabilities:Capabilities,
    privileged:flag, procMount:text, readOnlyRootFilesystem:flag, runAsGroup:int64, runAsNonRoot:flag,
    runAsUser:int64, seLinuxOptions:SELinuxOptions, seccompProfile:SeccompProfile,
    windowsOptions:WindowsSecurityContextOptions
ServiceAccountTokenProjection = audience:text, expirationSeconds:int64, path:text, user:int64
SleepAction = seconds:int64
StatefulSet = apiVersion:text, kind:text, metadata:any, spec:StatefulSetSpec, status:any
StatefulSetOrdinals = start:int32
StatefulSetPersistentVolumeClaimRetentionPolicy = whenDeleted:text, whenScaled:text
StatefulSetSpec = minReadySeconds:int32, ordinals:StatefulSetOrdinals,
    persistentVolumeClaimRetentionPolicy:StatefulSetPersistentVolumeClaimRetentionPolicy, podManagementPolicy:text,
    replicas:int32, revisionHistoryLimit:int32, selector:LabelSelector, serviceName:text, template:PodTemplateSpec,
    updateStrategy:StatefulSetUpdateStrategy, volumeClaimTemplates:[PersistentVolumeClaim]
StatefulSetUpdateStrategy = rollingUpdate:RollingUpdateStatefulSetStrategy, type:text
StorageOSVolumeSource = fsType:text, readOnly:flag, secretRef:LocalObjectReference, volumeName:text,
    volumeNamespace:text
SuccessPolicy = rules:[SuccessPolicyRule]
SuccessPolicyRule = succeededCount:int32, succeededIndexes:text
Sysctl = name:text, value:text
TCPSocketAction = host:text, port:intOrText
Toleration = effect:text, key:text, operator:text, tolerationSeconds:int64, value:text
TopologyConstraint = key:text
TopologySpreadConstraint = labelSelector:LabelSelector, matchLabelKeys:[text], maxSkew:int32, minDomains:int32,
    nodeAffinityPolicy:text, nodeTaintsPolicy:text, topologyKey:text, whenUnsatisfiable:text
TypedLocalObjectReference = apiGroup:text, kind:text, name:text
TypedObjectReference = apiGroup:text, kind:text, name:text, namespace:text
Volume = awsElasticBlockStore:AWSElasticBlockStoreVolumeSource, azureDisk:AzureDiskVolumeSource,
    azureFile:AzureFileVolumeSource, cephfs:CephFSVolumeSource, cinder:CinderVolumeSource,
    configMap:ConfigMapVolumeSource, csi:CSIVolumeSource, downwardAPI:DownwardAPIVolumeSource,
    emptyDir:EmptyDirVolumeSource, ephemeral:EphemeralVolumeSource, fc:FCVolumeSource, flexVolume:FlexVolumeSource,
    flocker:FlockerVolumeSource, gcePersistentDisk:GCEPersistentDiskVolumeSource, gitRepo:GitRepoVolumeSource,
    glusterfs:GlusterfsVolumeSource, hostPath:HostPathVolumeSource, image:ImageVolumeSource, iscsi:ISCSIVolumeSource,
    name:text, nfs:NFSVolumeSource, persistentVolumeClaim:PersistentVolumeClaimVolumeSource,
    photonPersistentDisk:PhotonPersistentDiskVolumeSource, portworxVolume:PortworxVolumeSource,
    projected:ProjectedVolumeSource, quobyte:QuobyteVolumeSource, rbd:RBDVolumeSource, scaleIO:ScaleIOVolumeSource,
    secret:SecretVolumeSource, storageos:StorageOSVolumeSource, vsphereVolume:VsphereVirtualDiskVolumeSource
VolumeDevice = devicePath:text, name:text
VolumeMount = bindMountOptions:[text], mountPath:text, mountPropagation:text, name:text, readOnly:flag,
    recursiveReadOnly:text, subPath:text, subPathExpr:text
VolumeProjection = clusterTrustBundle:ClusterTrustBundleProjection, configMap:ConfigMapProjection,
    downwardAPI:DownwardAPIProjection, podCertificate:PodCertificateProjection, secret:SecretProjection,
    serviceAccountToken:ServiceAccountTokenProjection
VolumeResourceRequirements = limits:{amount}, requests:{amount}
VsphereVirtualDiskVolumeSource = fsType:text, storagePolicyID:text, storagePolicyName:text, volumePath:text
WeightedPodAffinityTerm = podAffinityTerm:PodAffinityTerm, weight:int32
WindowsSecurityContextOptions = gmsaCredentialSpec:text, gmsaCredentialSpecName:text, hostProcess:flag,
    runAsUserName:text
WorkloadPodGroupDisruptionMode = all:any, single:any
WorkloadPodGroupGangSchedulingPolicy = minCount:int32
WorkloadPodGroupResourceClaim = name:text, resourceClaimName:text, resourceClaimTemplateName:text
WorkloadPodGroupSchedulingConstraints = topology:[TopologyConstraint]
WorkloadPodGroupSchedulingPolicy = basic:any, gang:WorkloadPodGroupGangSchedulingPolicy
"""
# Kubernetes 1.35 has workloadRef in place of schedulingGroup.
_OLDER: Final = {"PodSpec": {"workloadRef": "any"}}
_IN_CONTAINERS: Final = "it is a field of a container"
_IN_PODS: Final = "it is a field of the pod's spec"
_OF_D008: Final = ("/apiversion", "/kind")  # finding D008 reports their misspelling
_INT32: Final = shape.Integer(-(2**31), 2**31 - 1)


class _NumberOrText(shape.JsonShape):
    """The number or the name of a port, or a number or percentage of pods: a number, or a text such as "25%"."""

    types = frozenset({str})
    zero = 0

    def check(self, value: Any, path: str, findings: list[Finding]) -> None:
        _INT32.check(value, path, findings)


_PLAIN: Final[Mapping[str, shape.JsonShape]] = {
    "any": shape.JsonShape(),
    "text": shape.TEXT,
    "flag": shape.FLAG,
    "int32": _INT32,
    "int64": shape.Integer(),
    "intOrText": _NumberOrText(),
    "amount": shape.AmountShape(),
}


def check(value: dict[str, Any]) -> list[Finding]:
    """Report unknown fields and values of the wrong type in a pod, or in an object of a built-in kind with a pod template."""
    problems: list[Finding] = []
    _shapes()[value["kind"]].check(value, "", problems)
    return [problem for problem in problems if problem.code != "D002" or problem.path.casefold() not in _OF_D008]


def read_table() -> dict[str, dict[str, str]]:
    """Return the fields of each type, with the type of each field."""
    types: dict[str, dict[str, str]] = {}
    for line in TABLE.replace("\n    ", " ").strip().splitlines():
        name, _, fields = line.partition(" = ")
        types[name] = dict(field.split(":") for field in fields.split(", "))
    return types


@lru_cache(maxsize=1)
def _shapes() -> Mapping[str, shape.JsonShape]:
    """Return the shape of each type of the table."""
    table = {name: fields | _OLDER.get(name, {}) for name, fields in read_table().items()}
    of_pods, of_containers = table["PodSpec"].keys(), table["Container"].keys()
    moved = {
        "PodSpec": dict.fromkeys(of_containers - of_pods, _IN_CONTAINERS),
        "Container": dict.fromkeys(of_pods - of_containers, _IN_PODS),
        "PodTemplateSpec": dict.fromkeys(of_pods, _IN_PODS),
    }
    parts: dict[str, dict[str, shape.JsonShape]] = {name: {} for name in table}
    shapes = {name: shape.Fields(parts[name], name=name, moved=moved.get(name)) for name in table}
    for name, fields in table.items():
        for field, type_ in fields.items():
            parts[name][field] = _shape(type_, shapes)
    return shapes


def _shape(type_: str, shapes: Mapping[str, shape.JsonShape]) -> shape.JsonShape:
    if type_.startswith("["):
        return shape.ListOf(_shape(type_[1:-1], shapes))
    if type_.startswith("{"):
        return shape.MapOf(_shape(type_[1:-1], shapes))
    if type_ == "meta":
        return shape.shape_of(ObjectMeta)
    return _PLAIN.get(type_) or shapes[type_]
