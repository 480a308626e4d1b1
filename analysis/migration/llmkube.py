"""The GPUs of LLMKube's InferenceServices, which are of the vendor of their Models.

Follows defilantech/LLMKube 907ac8d: api/v1alpha1/inferenceservice_types.go (`modelRef`), model_types.go (`hardware.gpu.vendor`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from analysis.gitops import place_of
from dra.raw import inside, text
from webhook.translate import group_kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from analysis.migration.requests import Request
    from cluster.manifests import Document

_GROUP: Final = "inference.llmkube.dev"


class ModelVendors:
    """The vendors of the Models of a tree."""

    def __init__(self, documents: Sequence[Document]) -> None:
        self._vendors = {
            place_of(document.placed): text(inside(document.object, "spec", "hardware", "gpu").get("vendor")).lower()
            for document in documents
            if group_kind(document.object) == (_GROUP, "Model")
        }

    def with_vendor(self, document: Document, use: Request) -> Request:
        """Return the use of a document with the driver of its Model's vendor, if there is one."""
        obj = document.placed
        if group_kind(obj) != (_GROUP, "InferenceService"):
            return use
        vendor = self._vendors.get((use.namespace, text(inside(obj, "spec").get("modelRef"))))
        return use._replace(consumer=replace(use.consumer, drivers=(f"gpu.{vendor}.com",))) if vendor else use
