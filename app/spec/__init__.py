"""The contract between a client and a trainer: what a job is, checked, completed and summed up.

Pure: no file, no database, no framework, and cheap to import.
"""

from app.spec.expand import layers_of
from app.spec.job import EffectiveSpec, JobSpec
from app.spec.layers import Layer
from app.spec.parse import parse_spec
from app.spec.parts import Parts, part_sizes
from app.spec.problems import InvalidSpec, NotEnabled, SpecProblem
from app.spec.resolve import resolve
from app.spec.summary import LayerShape, Summary, summarise
from app.spec.table import CellAt, Column, TableSchema

__all__ = [
    "CellAt",
    "Column",
    "EffectiveSpec",
    "InvalidSpec",
    "JobSpec",
    "Layer",
    "LayerShape",
    "NotEnabled",
    "Parts",
    "SpecProblem",
    "Summary",
    "TableSchema",
    "layers_of",
    "parse_spec",
    "part_sizes",
    "resolve",
    "summarise",
]
