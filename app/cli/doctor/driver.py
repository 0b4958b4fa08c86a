"""The NVIDIA driver, its cards, and whether containers get them."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from app.cli.doctor.findings import Finding, fault, skipped, warning, well
from app.cli.doctor.place import Place
from app.fleet.devices import OK
from workers.inventory.select import gpu_sign

_NVIDIA: Final = "0x10de"
_DISPLAY: Final = "0x03"  # PCI base class: display controllers, 3D ones too
_TOOLS: Final = ("nvidia-ctk", "nvidia-container-runtime", "nvidia-container-cli")
_SPECS: Final = ("etc/cdi", "var/run/cdi", "run/cdi")
IN_CONTAINER: Final = (
    "Start the container with its cards: add docker-compose.gpu.yml (or docker run --gpus all); the host needs the "
    "NVIDIA container toolkit. If it had them before, restart the container."
)
ON_HOST: Final = "Install or repair the driver, until `nvidia-smi` lists the cards; after an update, reboot."


def check_driver(place: Place) -> Iterator[Finding]:
    """Cards that should be there and are not; a card without a driver; a driver without a card."""
    settings, listing = place.settings, place.cards
    if settings.simulated_inventory is not None:
        yield warning(
            "driver", "The devices are simulated: jobs train on the CPU.", "Unset TRAINSHED_SIMULATED_INVENTORY."
        )
        return
    if place.nvml is None:
        yield skipped("driver", "No worker is installed here (extra `worker`).")
        return
    if not listing.devices:
        yield _without_cards(place)
        return
    version = f" {listing.driver.version} (CUDA {listing.driver.cuda or 'unknown'})" if listing.driver else ""
    unused = ", which TRAINSHED_DEVICES=cpu leaves unused" if settings.devices == "cpu" else ""
    yield well("driver", f"The driver{version} lists {len(listing.devices)} devices{unused}.")
    if listing.reason:
        yield fault("driver.cards", listing.reason, ON_HOST)
    for device in listing.devices:
        if device.health != OK:
            yield fault(f"device.{device.id}", f"{device.name}: {device.reason}", "Reset the card, or replace it.")


def _without_cards(place: Place) -> Finding:
    advice = IN_CONTAINER if place.in_container else ON_HOST
    reason = place.cards.reason or "The driver lists no card."
    if place.settings.devices == "cpu":
        return well("driver", "TRAINSHED_DEVICES=cpu: none is needed.")
    if place.settings.devices == "cuda":
        return fault("driver", f"TRAINSHED_DEVICES=cuda, but: {reason}", advice)
    sign = gpu_sign(place.root)
    if sign is not None:
        return fault("driver", f"This host should have NVIDIA cards ({sign}), but: {reason}", advice)
    card = _card_on_the_bus(place.root)
    if card is not None and not place.in_container:
        return fault("driver", f"The PCI bus has an NVIDIA card ({card}), but no driver is loaded.", ON_HOST)
    return skipped("driver", "No NVIDIA card here; jobs run on the CPU.")


def _card_on_the_bus(root: Path) -> str | None:
    for device in sorted((root / "sys/bus/pci/devices").glob("*")):
        if _read(device / "vendor") == _NVIDIA and _read(device / "class").startswith(_DISPLAY):
            return device.name
    return None


def check_toolkit(place: Place) -> Iterator[Finding]:
    """Whether Docker on this host can give cards to containers."""
    if place.in_container:
        yield skipped("toolkit", "Inside a container; the host has it or not.")
    elif not place.cards.devices:
        yield skipped("toolkit", "No NVIDIA card here.")
    elif shutil.which("docker", path=place.environ.get("PATH", "")) is None:
        yield skipped("toolkit", "No Docker here.")
    elif _has_toolkit(place):
        yield well("toolkit", "The NVIDIA container toolkit is installed.")
    else:
        yield warning(
            "toolkit",
            "Docker is here, but not the NVIDIA container toolkit: containers get no cards.",
            "Install nvidia-container-toolkit, run `nvidia-ctk runtime configure --runtime=docker`, restart Docker.",
        )


def _has_toolkit(place: Place) -> bool:
    path = place.environ.get("PATH", "")
    if any(shutil.which(tool, path=path) for tool in _TOOLS):
        return True
    if any(file.name.startswith("nvidia") for folder in _SPECS for file in (place.root / folder).glob("*")):
        return True
    try:
        runtimes = json.loads(_read(place.root / "etc/docker/daemon.json") or "{}").get("runtimes", {})
    except (ValueError, AttributeError):
        return False
    return "nvidia" in runtimes


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
