"""What a worker finds out about its host before it registers: its devices, its state, and what it can offer."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from app.clock import Clock
from app.fleet.condition import SELF_TEST_FAILED, Condition, Remark
from app.settings import Settings
from workers import self_test, startup
from workers.interpreters import Interpreter
from workers.inventory import Inventory, InventoryChoice, Listing, choose_inventory
from workers.inventory.cores import usable_cores
from workers.inventory.neighbours import Neighbours, Policy, SystemProcesses
from workers.lookout import Lookout
from workers.repeated import within
from workers.sandbox_probe import isolation, lacking
from workers.surroundings import DRIVER_SILENT, PROBE_SILENT, Surroundings
from workers.trainer_user import TrainerUsers

log = structlog.get_logger("worker")

FIRST_LOOK_S: Final = 30.0
"""How long a start waits for the driver, and for the disks; the worker then registers and says what is missing."""

WEAK_ISOLATION: Final = "weak_isolation"
"""The code of the problem."""

NO_FRAMEWORK: Final = (
    "This worker found no framework, so it runs nothing but scripts with the framework 'python'. Install "
    "trainshed[torch] or trainshed[tensorflow], or set "
    'TRAINSHED_INTERPRETERS={"torch": "/opt/torch/bin/python"}.'
)


@dataclass(frozen=True)
class Survey:
    """The host's surroundings, ready to be watched, and the frameworks that it offers."""

    surroundings: Surroundings
    offered: Mapping[str, Interpreter]


def survey(
    settings: Settings,
    host_id: str,
    interpreters: Mapping[str, Interpreter],
    clock: Clock,
    users: TrainerUsers | None = None,
) -> Survey:
    """Look once at everything; nothing is watched yet. Blocks for at most `FIRST_LOOK_S` each, and for self-tests.

    Raises:
        InvalidInventory: the file of simulated devices cannot be used.
    """
    inventory = inventory_of(settings, host_id)
    silent = Listing(reason=DRIVER_SILENT.message, blind=True)
    first = within(FIRST_LOOK_S, inventory.list_devices, silent)
    policy = Policy(frozenset(settings.ignored_processes), settings.foreign_memory_bytes)
    lookout = Lookout(inventory, Neighbours(SystemProcesses(), policy), clock, first)
    has_cards = any(device.kind == "cuda" for device in lookout.outlook.devices)
    probe = partial(startup.probe, settings, many_processes=has_cards, users=users)
    faults = _self_test(settings, lookout, interpreters, users)
    surroundings = Surroundings(
        lookout,
        probe,
        within(FIRST_LOOK_S, probe, Condition(blockers=(PROBE_SILENT,))),
        clock,
        interval_s=settings.inventory_s,
        standing=[
            *(Remark(SELF_TEST_FAILED, f"{name} is not offered: {fault}") for name, fault in faults.items()),
            *_isolation(users),
        ],
        missing=None if interpreters else NO_FRAMEWORK,
        metrics_port=settings.metrics_port or None,
    )
    return Survey(surroundings, {name: found for name, found in interpreters.items() if name not in faults})


def inventory_of(settings: Settings, host_id: str) -> Inventory:
    return choose_inventory(
        InventoryChoice(
            devices=settings.devices,
            host_id=host_id,
            cores=usable_cores(),
            simulated=settings.simulated_inventory,
            cpu_slots=settings.cpu_slots,
        )
    )


def _isolation(users: TrainerUsers | None) -> list[Remark]:
    """What code of users cannot have here, since the host cannot shut it off from the network as it should."""
    lacks = lacking(isolation(None if users is None else users.uids[-1]))
    return [] if lacks is None else [Remark(WEAK_ISOLATION, lacks)]


def _self_test(
    settings: Settings, lookout: Lookout, interpreters: Mapping[str, Interpreter], users: TrainerUsers | None
) -> dict[str, str]:
    """By framework, why it must not be offered here."""
    devices = self_test.wanted(settings.self_test, lookout.outlook.devices)
    if not devices or not interpreters:
        return {}
    paths: dict[str, Path] = {name: found.path for name, found in interpreters.items()}
    verdicts = self_test.run(paths, devices, environment=dict(os.environ), users=users)
    for name, fault in verdicts.items():
        log.info("self_test", framework=name, device=devices[0].id, fault=fault)
    return {name: fault for name, fault in verdicts.items() if fault is not None}
