"""What a machine has, described in a file or found in its sysfs, and the devices that it makes."""

from __future__ import annotations

from node.inventory.machine import Machine, Offer, machine_of
from node.inventory.numbers import listed, numbers_of
from node.inventory.reading import read

__all__ = ["Machine", "Offer", "listed", "machine_of", "numbers_of", "read"]
