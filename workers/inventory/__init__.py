"""What devices this host has: by NVML, from a JSON file (simulated), or CPU slots."""

from workers.inventory.base import Inventory, Listing
from workers.inventory.cpu import CpuInventory
from workers.inventory.nvml import NvmlInventory
from workers.inventory.select import InventoryChoice, choose_inventory
from workers.inventory.simulated import InvalidInventory, SimulatedInventory

__all__ = [
    "CpuInventory",
    "InvalidInventory",
    "Inventory",
    "InventoryChoice",
    "Listing",
    "NvmlInventory",
    "SimulatedInventory",
    "choose_inventory",
]
