"""Reads and writes manifests: the only reader and writer of YAML."""

from cluster.manifests.config_maps import unfold
from cluster.manifests.documents import (
    FOREIGN_FOLDERS,
    Document,
    InputProblem,
    Keep,
    ManifestError,
    Overlay,
    document_of,
    dump,
    parse,
    read,
    read_leniently,
    value_of,
)
from cluster.manifests.places import LeadsOut, UnreadFile, bounds, opened_folder, settled, walk
from cluster.manifests.templates import chart_of, is_named_template, is_named_test, is_of_chart
from cluster.manifests.yaml_editor import CannotEdit, edit

__all__ = [
    "FOREIGN_FOLDERS",
    "CannotEdit",
    "Document",
    "InputProblem",
    "Keep",
    "LeadsOut",
    "ManifestError",
    "Overlay",
    "UnreadFile",
    "bounds",
    "chart_of",
    "document_of",
    "dump",
    "edit",
    "is_named_template",
    "is_named_test",
    "is_of_chart",
    "opened_folder",
    "parse",
    "read",
    "read_leniently",
    "settled",
    "unfold",
    "value_of",
    "walk",
]
