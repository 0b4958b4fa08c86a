"""The contract between a client and a trainer: what a job is, checked, completed and summed up.

Pure: no file, no database, no framework, and cheap to import.
"""

from app.spec.expand import layers_of
from app.spec.inputs import InputColumn, input_shape_of, inputs_of
from app.spec.job import EffectiveSpec, JobSpec
from app.spec.layers import Layer, Shape, walk
from app.spec.parse import parse_spec
from app.spec.parts import Parts, part_sizes
from app.spec.problems import InvalidSpec, NotEnabled, SpecProblem
from app.spec.resolve import resolve
from app.spec.shapes import LayerShape, ShapeProblem, infer
from app.spec.summary import Summary, summarise
from app.spec.table import CellAt, Column, DataNote, TableSchema
from app.spec.weights import WeightFacts, weight_facts, weight_shapes

__all__ = [
    "CellAt",
    "Column",
    "DataNote",
    "EffectiveSpec",
    "InputColumn",
    "InvalidSpec",
    "JobSpec",
    "Layer",
    "LayerShape",
    "NotEnabled",
    "Parts",
    "Shape",
    "ShapeProblem",
    "SpecProblem",
    "Summary",
    "TableSchema",
    "WeightFacts",
    "infer",
    "input_shape_of",
    "inputs_of",
    "layers_of",
    "parse_spec",
    "part_sizes",
    "resolve",
    "summarise",
    "walk",
    "weight_facts",
    "weight_shapes",
]
