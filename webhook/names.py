"""The names that the webhook writes into users' objects or reads there: annotations, labels and prefixes. Also drawbridge's version.

The names are a public interface (docs/architecture.md); no other module of this package repeats one. `pyproject.toml` reads the version from
here.
"""

VERSION = "0.1.0"

NAME = "drawbridge"
DOMAIN = "drawbridge.dev"
NAMESPACE = "drawbridge-system"
API_VERSION = f"{DOMAIN}/v1alpha1"

# The documentation page of the configuration, for messages.
CONFIGURATION_PAGE = "docs/configuration.md"

# The Service at which the audit agents of nodes read the allocator's reservations, and the Secret with its certificate.
RESERVATIONS = f"{NAME}-reservations"

# MODE_LABEL is on namespaces and names the mode. SKIP_LABEL is on pods: with the value "true", the webhook skips the pod.
MODE_LABEL = f"{DOMAIN}/mode"
SKIP_LABEL = f"{DOMAIN}/skip"
BYPASS_HINT = f"to bypass drawbridge, label the pod {SKIP_LABEL}=true"

# On pods whose ResourceClaimTemplate does not exist yet. The template controller watches only pods with this label. Anyone can set the label.
WAITS_LABEL = f"{DOMAIN}/awaits-template"

# On translated pods. The validating webhook checks pods with this label for keys that another webhook restored. Anyone can set the label.
TRANSLATED_LABEL = f"{DOMAIN}/translated"

# Annotations of translated pods: the original requests, the decisions, the signed specs of the claims, and device counts for tools that read
# the old keys.
ORIGINAL = f"{DOMAIN}/original"
DECISION = f"{DOMAIN}/decision"
TEMPLATES = f"{DOMAIN}/templates"
DEVICES = f"{DOMAIN}/devices"
ANNOTATIONS = (ORIGINAL, DECISION, DEVICES, TEMPLATES)

# An annotation that a pod's author can set: whether Kubernetes serves the extended resources of DeviceClasses itself, or claims replace them.
EXTENDED_RESOURCES = f"{DOMAIN}/extended-resources"

# The key of the fence: a device taint that reserves devices for the scheduler of the bridge (drawbridge's allocator for schedulers).
FENCE = f"{DOMAIN}/fence"

# The folder of the kubelet's socket for device plugins. A pod that mounts it is a device plugin.
PLUGIN_FOLDER = "/var/lib/kubelet/device-plugins"

# The prefix of the names that claims have in a pod, and of templates' names. The labels of templates.
PREFIX = f"{NAME}-"
LABELS = {"app.kubernetes.io/managed-by": NAME}


def class_remedy(target: str) -> str:
    """Return the remedy for a target whose DeviceClass was not found."""
    return f"if the DeviceClass has another name, an administrator can set `classes: {{{target}: NAME}}` ({CONFIGURATION_PAGE})"
