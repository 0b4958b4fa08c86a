"""How the report looks: a few colours that are told apart by eyes of any kind, thin lines, no frames."""

from contextlib import AbstractContextManager
from typing import Any, Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.font_manager import fontManager

TRAINING: Final = "#0072b2"
VALIDATION: Final = "#d55e00"
QUIET: Final = "#8a8a8a"
GOOD: Final = "#009e73"
MAP: Final = "Blues"
DPI: Final = 130

_SETTINGS: Final[dict[str, Any]] = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.labelsize": 9,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.7,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "figure.constrained_layout.h_pad": 0.12,
    "figure.constrained_layout.w_pad": 0.12,
    "lines.linewidth": 1.6,
}


_OTHER_SCRIPTS: Final = (
    "Noto Sans CJK JP",
    "Noto Sans CJK SC",
    "Noto Sans CJK KR",
    "WenQuanYi Zen Hei",
    "IPAGothic",
    "Noto Sans Arabic",
    "Noto Sans Hebrew",
    "Noto Sans Devanagari",
    "Noto Sans Thai",
)
"""Fonts for labels that Matplotlib's own has no glyphs for, where the machine has them; else boxes are drawn."""


def style() -> AbstractContextManager[None]:
    """Draw like this as long as the context lasts."""
    there = {font.name for font in fontManager.ttflist}
    fonts = ["DejaVu Sans", *(name for name in _OTHER_SCRIPTS if name in there)]
    settings: Any = _SETTINGS | {"font.family": fonts}  # its keys are a type of their own, another in each version
    return mpl.rc_context(settings)


def note(axes: Axes, sentence: str) -> None:
    """Say in an empty panel why there is nothing to see."""
    axes.set_axis_off()
    axes.text(0.5, 0.5, sentence, ha="center", va="center", color=QUIET, fontsize=9, wrap=True)


def shortened(text: object, length: int = 18) -> str:
    """Cut a label that would not fit; a dollar sign in it is no formula."""
    written = str(text)
    cut = written if len(written) <= length else f"{written[: length - 1]}…"
    return cut.replace("$", r"\$")
