"""Every name that the webhook writes into other people's objects, or reads there: annotations, labels, prefixes, and our version.

Data only. These names are fixed for others (docs/architecture.md); nothing else in this room spells one out. `pyproject.toml` takes the
version from here.
"""

VERSION = "0.1.0"

NAME = "drawbridge"
DOMAIN = "drawbridge.dev"
NAMESPACE = "drawbridge-system"
API_VERSION = f"{DOMAIN}/v1alpha1"

# Where tables of the configuration are explained that a message asks for.
TABLES = "docs/configuration.md"

# The Service, and the configuration, by which API servers ask about quotas.
QUOTA = f"{NAME}-quota"

# The Service by which audit agents of nodes ask which devices the allocator has reserved there.
RESERVATIONS = f"{NAME}-reservations"

# On namespaces: how far we go there. On pods: "true" passes a pod by.
MODE_LABEL = f"{DOMAIN}/mode"
SKIP_LABEL = f"{DOMAIN}/skip"
WAY_OUT = f"to bypass drawbridge, label the pod {SKIP_LABEL}=true"

# On pods for which a template has still to be made: the templates controller follows only these. It proves nothing.
WAITS_LABEL = f"{DOMAIN}/awaits-template"

# On pods that we translated: these are looked at once more, for what others put back after us. It proves nothing.
TRANSLATED_LABEL = f"{DOMAIN}/translated"

# On pods: the requests as they were, what was done, the signed specs, and counts for tools that looked at the old keys.
ORIGINAL = f"{DOMAIN}/original"
DECISION = f"{DOMAIN}/decision"
TEMPLATES = f"{DOMAIN}/templates"
DEVICES = f"{DOMAIN}/devices"
ANNOTATIONS = (ORIGINAL, DECISION, DEVICES, TEMPLATES)

# On pods, by their authors: whether the pod stays as it is where a DeviceClass serves what it asks for by name.
EXTENDED_RESOURCES = f"{DOMAIN}/extended-resources"

# On devices: the taint that keeps them for the bridge.
FENCE = f"{DOMAIN}/fence"

# Where the kubelet listens for device plugins: a pod that mounts this folder is one.
PLUGIN_FOLDER = "/var/lib/kubelet/device-plugins"

# Of claims on a pod, and of templates.
PREFIX = f"{NAME}-"
LABELS = {"app.kubernetes.io/managed-by": NAME}


def other_name(target: str) -> str:
    """Return the remedy for a target whose DeviceClass has an unknown name."""
    return f"if it has another name, an administrator can set `classes: {{{target}: NAME}}` ({TABLES})"
