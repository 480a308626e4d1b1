"""What may come in under a quota before it has any devices, and what was let in and still waits for them."""

from __future__ import annotations

from allocator.intake.book import Book
from allocator.intake.core import beside_core
from allocator.intake.door import Indoors
from allocator.intake.newcomer import Newcomer, Wanted

__all__ = ["Book", "Indoors", "Newcomer", "Wanted", "beside_core"]
