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

# The Service and the webhook configuration of quota admission.
QUOTA = f"{NAME}-quota"

# The Service at which the audit agents of nodes read the allocator's reservations.
RESERVATIONS = f"{NAME}-reservations"

# On namespaces: the mode. On pods: "true" makes the webhook skip the pod.
MODE_LABEL = f"{DOMAIN}/mode"
SKIP_LABEL = f"{DOMAIN}/skip"
BYPASS_HINT = f"to bypass drawbridge, label the pod {SKIP_LABEL}=true"

# On pods whose template does not exist yet: the template controller watches only these. Anyone can set it.
WAITS_LABEL = f"{DOMAIN}/awaits-template"

# On translated pods: the validating webhook checks them again for keys that another webhook restored. Anyone can set it.
TRANSLATED_LABEL = f"{DOMAIN}/translated"

# On pods: the original requests, the decisions, the signed specs, and device counts for tools that read the old keys.
ORIGINAL = f"{DOMAIN}/original"
DECISION = f"{DOMAIN}/decision"
TEMPLATES = f"{DOMAIN}/templates"
DEVICES = f"{DOMAIN}/devices"
ANNOTATIONS = (ORIGINAL, DECISION, DEVICES, TEMPLATES)

# On pods, set by their authors: whether Kubernetes or a claim serves extended resources of DeviceClasses.
EXTENDED_RESOURCES = f"{DOMAIN}/extended-resources"

# On devices: the taint that reserves them for the bridge's scheduler.
FENCE = f"{DOMAIN}/fence"

# The folder of the kubelet's socket for device plugins. A pod that mounts it is a device plugin.
PLUGIN_FOLDER = "/var/lib/kubelet/device-plugins"

# Prefix of the claims' names on a pod, and of templates; and the labels of templates.
PREFIX = f"{NAME}-"
LABELS = {"app.kubernetes.io/managed-by": NAME}


def class_remedy(target: str) -> str:
    """Return the remedy for a target whose DeviceClass was not found."""
    return f"if it has another name, an administrator can set `classes: {{{target}: NAME}}` ({CONFIGURATION_PAGE})"
