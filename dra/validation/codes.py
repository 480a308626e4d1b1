"""Every code a finding can carry: what it stands for, how bad it is, what generally helps.

A code never changes its meaning and is never used again for another one. Errors of the D0 and D1 rows, and R001, are what
the API server itself would answer; everything that it accepts and that will go wrong later is a warning or an information.
Printed by `drawbridge check --explain CODE`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from dra.finding import Severity

_ERROR, _WARNING, _INFO = Severity.ERROR, Severity.WARNING, Severity.INFO


class FindingCode(NamedTuple):
    title: str
    severity: Severity
    remedy: str
    without: str = ""  # of a refusal: what becomes of the pod where no webhook refuses it


CODES: Final[dict[str, FindingCode]] = {
    # What is written: before any rule of the API can be asked.
    "D001": FindingCode("a value is of the wrong type", _ERROR, "write a value of the type that the field has"),
    "D002": FindingCode("a field does not exist", _WARNING, "remove it or correct its name: the API server drops it, and kubectl's strict validation refuses the object"),
    "D003": FindingCode("an outdated version of the API", _WARNING, "write resource.k8s.io/v1: older versions are not served by default"),
    "D004": FindingCode("a version or kind that no supported API server knows", _ERROR, "write it as resource.k8s.io/v1"),
    "D005": FindingCode("a key is given twice", _WARNING, "remove one of them: the later one counts, and the earlier one is lost silently"),
    "D006": FindingCode("a field is dropped unless a feature gate is on", _WARNING, "enable the feature gate in the API server and the scheduler, or leave the field out"),
    "D007": FindingCode("a value is missing and reads as zero", _WARNING, "write the value"),
    "D008": FindingCode("no apiVersion or no kind", _ERROR, "add what is missing: kubectl and the API server refuse the object"),
    "D009": FindingCode("a namespace on an object that belongs to the whole cluster", _INFO, "remove the namespace: the API server ignores it"),
    "D010": FindingCode("an object that drawbridge fails to judge", _ERROR, "report it with the object: this is a bug in drawbridge, and nothing is known of the object"),
    "D011": FindingCode("a placeholder that is not filled in", _WARNING, "fill it in, or check what its template renders to"),
    "D012": FindingCode("devices are requested in a file that is not read as objects", _WARNING, "check the objects that are made of it: --chart DIR --values FILE, -k DIR, or -f -"),
    # What the API server refuses.
    "D101": FindingCode("a required value is missing", _ERROR, "set the field"),
    "D102": FindingCode("a name or value has the wrong format", _ERROR, "use the format that the message gives"),
    "D103": FindingCode("too long", _ERROR, "shorten it"),
    "D104": FindingCode("too many entries", _ERROR, "split the object, or drop entries"),
    "D105": FindingCode("the same entry twice", _ERROR, "remove or rename one of them"),
    "D106": FindingCode("a value that is not among the allowed ones", _ERROR, "use one of the allowed values"),
    "D107": FindingCode("fields that exclude each other, or of which one is needed", _ERROR, "set exactly the fields that the message names"),
    "D108": FindingCode("a value out of range", _ERROR, "use a value inside the range"),
    "D109": FindingCode("a reference to something that this object does not have", _ERROR, "correct the name, or add what it refers to"),
    "D110": FindingCode("a selector is not valid CEL", _ERROR, "correct the expression"),
    "D111": FindingCode("a selector may cost too much", _ERROR, "make the expression simpler: bound loops, avoid nested ones"),
    "D112": FindingCode("driver parameters are not a JSON object", _ERROR, "write an object, with apiVersion and kind of the driver"),
    "D113": FindingCode("a request policy that contradicts its capacity", _ERROR, "bring default, values, range and step in line with the capacity"),
    "D114": FindingCode("the metadata is not valid", _ERROR, "correct the field"),
    "D115": FindingCode("the field cannot be changed", _ERROR, "delete the object and create it again"),
    "D116": FindingCode("the status contradicts the object", _ERROR, "only the allocator and the driver write the status: take it from the cluster"),
    "D117": FindingCode("the nodes that have the devices are not named, or named twice", _ERROR, "set exactly one of nodeName, nodeSelector, allNodes and, in a slice, perDeviceNodeSelection"),
    "D118": FindingCode("a compatibility rule is not valid", _ERROR, "correct the rule"),
    "D119": FindingCode("admin access in a namespace that does not allow it", _ERROR, "label the namespace resource.kubernetes.io/admin-access=true, or leave adminAccess out"),
    # Pods and workloads.
    "D201": FindingCode("a claim of the pod names nothing", _ERROR, "set resourceClaimName or resourceClaimTemplateName"),
    "D202": FindingCode("a container uses a claim that the pod does not have", _ERROR, "add it to spec.resourceClaims, or correct the name"),
    "D203": FindingCode("the pod's claims are not valid", _ERROR, "correct the entry"),
    "D204": FindingCode("a claim that no container uses", _INFO, "name it under resources.claims of the containers that need the devices"),
    "D205": FindingCode("a container names a request that the claim does not have", _WARNING, "use the name of a request of the claim"),
    "D206": FindingCode("a claim or template that is not among the manifests", _WARNING, "add it to the input or to the inventory, or correct the name"),
    "D207": FindingCode("one claim for many pods", _INFO, "use a ResourceClaimTemplate, so that every pod gets its own devices"),
    "D208": FindingCode("a pod that is bound to a node by name never gets devices", _WARNING, "remove spec.nodeName and select the node with spec.nodeSelector or affinity"),
    "D210": FindingCode("ephemeral containers before there is a pod", _ERROR, "leave them out: `kubectl debug` adds them to a pod that runs"),
    "D211": FindingCode("a key that looks like a request for devices and that no dialect reads", _WARNING, "correct its name, or declare it under `dialects`; `drawbridge dialects` lists the keys that are understood"),
    "D212": FindingCode("a node selector or node affinity that no node meets", _WARNING, "select what the nodes have, or leave the selector out: the pod waits until a node has it"),
    "D213": FindingCode("a resource that a container cannot request", _ERROR, "write a domain in lower case and a name, as in nvidia.com/gpu: only cpu, memory, ephemeral-storage and hugepages have no domain"),
    "D214": FindingCode("invalid drawbridge.dev/mode label", _ERROR, "write off, observe, warn or enforce, in quotes, or leave the label out: until then drawbridge only warns there"),
    "D215": FindingCode("the object exceeds the inspection limit", _WARNING, "split the object, or run `drawbridge translate` on that part alone"),
    "D216": FindingCode("a DeviceQuota would refuse it", _WARNING, "request no more than the quota allows, release devices, or have the quota raised: it holds where an allocator of drawbridge asks (docs/quota.md)"),
    "D217": FindingCode("a DeviceQuota has room for some of the replicas only", _INFO, "the others wait until the namespace releases devices: lower the number, or have the quota raised"),
    "D218": FindingCode("a pod that is left behind a fence", _WARNING, "change `extendedResources: leave`, or give the pod the bridge's scheduler: no other one places it"),
    "D219": FindingCode("a container, or a whole pod, beyond what a LimitRange allows", _WARNING, "ask for amounts within the LimitRange of the namespace, or have it changed: the API server refuses the pod"),
    "D220": FindingCode("a request by the name of a class that serves nothing", _WARNING, "create the class, or correct its name; where DRAExtendedResource is off, ask by a claim"),
    "D221": FindingCode("a request that is served only by nodes that the pod cannot run on", _WARNING, "correct the pod's node selector, affinity or tolerations, or bring the device plugin to the nodes that it can run on"),
    "D222": FindingCode("a request for what no node and no class has", _WARNING, "ask for what the nodes have, or bring the device plugin or the driver: the pod waits until a node has it"),
    "D223": FindingCode("a key of a ResourceQuota whose claims no ResourceQuota counts", _WARNING, "limit the key that `quotas` of the configuration names in a ResourceQuota of the namespace, or correct `quotas`; a DeviceQuota counts apart"),
    # Claims and classes against each other and against the fleet.
    "D301": FindingCode("a class that does not exist", _WARNING, "create the class, or correct deviceClassName"),
    "D302": FindingCode("no published device can match", _WARNING, "compare the selectors with what the drivers publish"),
    "D303": FindingCode("an attribute that no published device has", _WARNING, "correct the name or the domain of the attribute"),
    "D304": FindingCode("an attribute that some devices lack is read unguarded", _WARNING, 'guard it: `"x" in device.attributes["d"]`, has() or .?x.orValue(...): the scheduler gives up on such an error'),
    "D305": FindingCode("a request larger than any device", _WARNING, "ask for no more than the largest device has"),
    "D306": FindingCode("a constraint that no devices can meet", _WARNING, "constrain an attribute that all matching devices publish"),
    "D307": FindingCode("more devices than the allocator can give", _WARNING, "ask for at most 32 devices a claim"),
    "D308": FindingCode("a mode All that cannot be met", _WARNING, "see the message: All means every matching device of a node, free and healthy"),
    "D309": FindingCode("two classes share an extended resource name", _WARNING, "give each class its own: the newer class wins, then the name that sorts first"),
    "D310": FindingCode("admin access needs a labelled namespace", _INFO, "label the namespace resource.kubernetes.io/admin-access=true"),
    "D311": FindingCode("a share of a device with no amount given", _INFO, "set capacity.requests, or rely on the driver's default knowingly"),
    "D312": FindingCode("outdated CEL", _WARNING, "write the modern form"),
    "D313": FindingCode("driver parameters for a driver that this class does not select", _INFO, "check the driver's name"),
    "D314": FindingCode("a capacity that matching devices do not have under that name", _WARNING, "use the name as it is published: memory and gpu.example.com/memory are two names here"),
    "D315": FindingCode("no node could serve the claim, even if nothing were in use", _WARNING, "request what the message offers, or for devices that are on one node"),
    "D316": FindingCode("more driver parameters than an allocation can hold", _WARNING, "merge entries: an allocation holds 64, those of the classes and of the claim together"),
    "D317": FindingCode("a taint rule that taints no device, or all of them", _WARNING, "name driver, pool or device as they are published"),
    "D318": FindingCode("a resource name that only tainted devices serve", _WARNING, "have the webhook translate such pods into claims that tolerate the taint, or remove the taint"),
    # What drivers publish.
    "D401": FindingCode("a pool is incomplete", _WARNING, "publish all slices of the newest generation: until then none of the pool's devices is allocated with mode All"),
    "D402": FindingCode("slices of an older generation are left over", _INFO, "delete them once the new generation is complete"),
    "D403": FindingCode("a pool has slices that disagree", _WARNING, "give all slices of a generation the same resourceSliceCount"),
    "D404": FindingCode("one device name in several slices of a pool", _WARNING, "make device names unique in the pool: the allocator refuses the whole pool"),
    "D405": FindingCode("a counter set or counter that the pool does not have", _WARNING, "publish the counter set in a slice of the same pool and generation: the allocator refuses the whole pool"),
    "D406": FindingCode("a negative amount", _WARNING, "publish amounts of zero or more"),
    "D407": FindingCode("a device that can never be allocated", _WARNING, "compare what it consumes with what its counter set has"),
    "D408": FindingCode("a device without groups among devices with groups", _WARNING, "give all devices of a counter set groups, or none"),
    "D409": FindingCode("a key both bare and with the driver's domain", _WARNING, "publish one of them: which one CEL sees is left to chance"),
    "D410": FindingCode("large partitions come before small ones", _INFO, "list small partitions first: the allocator takes the first device that fits, and breaks up the large ones"),
    "D411": FindingCode("upper case in the name of a driver", _WARNING, "use lower case"),
    "D414": FindingCode("a counter set defined twice in a pool", _WARNING, "make counter set names unique in the pool: the allocator refuses the whole pool"),
    "D415": FindingCode("compatibility groups that change nothing, or allow no other device", _INFO, "see the message"),
    "D416": FindingCode("a shared capacity without a default", _INFO, "set requestPolicy.default"),
    "D418": FindingCode("a node selector that does not work as it looks", _WARNING, "see the message"),
    # compatibleOnlyWith.
    "D501": FindingCode("two devices disagree whether they are compatible", _WARNING, "state the rule on both sides: a device that allows another must be allowed by it"),
    "D502": FindingCode("a rule that reads nothing that tells devices apart", _WARNING, "compare an attribute in which the devices differ"),
    "D503": FindingCode("a rule that applies to no device", _WARNING, "correct driver or selector of the rule"),
    "D504": FindingCode("a device that is not compatible with its own kind", _INFO, "that is fine for exclusive modes; otherwise let the rule allow its own mode"),
    "D505": FindingCode("a rule that fails on some devices", _WARNING, "guard what the rule reads: a failing rule excludes"),
    "D506": FindingCode("a compatibleOnlyWith rule inside of a ResourceSlice", _WARNING, "write a DeviceCompatibility: the API server drops the field, and nothing keeps the devices apart"),
    "D507": FindingCode("a scheduler that knows no DeviceCompatibility may act against one", _WARNING, "have drawbridge's scheduler place the pod (docs/bridge.md), or wait until the other device is free"),
    "D508": FindingCode("a rule about nodes for devices that are on no single node", _WARNING, "give such devices a rule with scope: pool; one with scope: node holds for devices whose slice, or whose own nodeName, names their node"),
    "D509": FindingCode("more rules or devices than are compared", _WARNING, "have fewer rules for one driver, or look through the others yourself: what the rules say holds for all devices, compared or not"),
    # What claims hold.
    "D601": FindingCode("a device that two claims hold", _WARNING, "free one of the claims: delete its consumers, or the claim"),
    "D602": FindingCode("a device in use that is not published", _WARNING, "find out why its driver withdrew it; counters and capacity count it as free"),
    "D603": FindingCode("more of a capacity in use than exists", _WARNING, "free one of the claims, or publish what the device really has"),
    "D604": FindingCode("more of a counter in use than there is", _WARNING, "free one of the claims: until then no device that consumes counters of the pool can be allocated"),
    # What drivers read of the parameters that claims and classes carry for them.
    "D701": FindingCode("parameters of a kind that the driver does not know", _WARNING, "write apiVersion and kind as the driver has them: it refuses to prepare devices with others"),
    "D702": FindingCode("a field that the driver's parameters do not have", _WARNING, "correct its name or remove it: drivers refuse to prepare devices with unknown fields"),
    "D703": FindingCode("a value that the driver does not take", _WARNING, "use a value that the message gives: the driver refuses to prepare the devices"),
    "D704": FindingCode("driver parameters that exclude each other", _WARNING, "keep one of them"),
    "D705": FindingCode("driver parameters for other devices than requested", _WARNING, "use the kind for these devices, or ask for others: a driver refuses such an entry, or ignores one that is for all requests"),
    "D706": FindingCode("parameters for a driver whose devices the claim cannot get", _WARNING, "correct opaque.driver, or leave the entry out: no driver will read it"),
    "D707": FindingCode("driver parameters that do not reach the request that they name", _WARNING, "name requests as the driver looks for them; see the message"),
    "D708": FindingCode("driver parameters that change nothing", _INFO, "leave them out, or do what the message says"),
    "D709": FindingCode("driver parameters that depend on how the driver runs", _INFO, "ask who installed the driver: where it runs otherwise, the pod stays in ContainerCreating"),
    "D710": FindingCode("a channel that belongs to no ComputeDomain", _WARNING, "use the template that the ComputeDomain creates: it names the domain by its uid"),
    "D711": FindingCode("a ComputeDomain that contradicts other objects", _WARNING, "see the message"),
    # The configuration file of drawbridge itself, found by webhook.config.
    "C001": FindingCode("the configuration of drawbridge is not valid", _ERROR, "correct the field"),
    "C002": FindingCode("the configuration declares a version or feature gate that no server has", _WARNING, "correct its name; it is ignored meanwhile"),
    # The webhook refuses it with the same code.
    "R001": FindingCode("not an amount that the API server accepts for a device", _ERROR, "set a whole number as the limit of a container, and the same number or nothing as the request", "the API server refuses it"),
}  # fmt: skip
