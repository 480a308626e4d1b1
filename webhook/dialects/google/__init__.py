"""Google TPUs: chips, as GKE's device plugin counts them.

The driver allocates single chips and publishes no topology that a claim could request, so the node selectors for a machine type stay on the
pod. Keys follow GKE's documentation of TPU workloads; the target follows kubernetes-sigs/dra-driver-google-tpu.
"""

from webhook.dialects.plain import vocabulary_of
from webhook.dialects.table import Dialect, Position, Role, node_label, row, untranslated
from webhook.dialects.targets import Target

DIALECT = Dialect(
    name="google",
    title="Google TPU",
    target="tpu",
    independent=True,
    keys=(
        row("google.com/tpu", "TPU chips; most machine types need all chips of a node", Role.COUNT),
        untranslated(
            "cloud-tpus.google.com/<version>",
            "cores of a Cloud TPU node, a retired model",
            "such TPUs are not part of any node, so no driver publishes them",
        ),
        *(
            node_label(f"cloud.google.com/gke-{name}", text)
            for name, text in (
                ("tpu-accelerator", "generation of the node's TPUs"),
                ("tpu-topology", "shape of the slice"),
                ("tpu-slice", "which slice the node is part of"),
                ("tpu-partition-<shape>-state", "whether a partition of the slice is healthy"),
                ("nodepool", "which node pool"),
                ("spot", "whether the node can be preempted"),
            )
        ),
        untranslated(
            "cloud.google.com/gke-tpu-slice-topology",
            "shape of a slice that is composed for the pods",
            "stays: GKE reads it to create the slice and its node selectors",
            Position.ANNOTATION,
        ),
    ),
)


VOCABULARY = vocabulary_of(
    DIALECT,
    Target(
        name="tpu",
        title="TPU chip",
        driver="tpu.google.com",
        classes=("tpu.google.com",),
        unique="tpu.google.com/index",
        request="tpu",
    ),
)
