"""The contract between a client and a trainer: what a job is, checked, completed and summed up.

Pure: no file, no database, no framework, and cheap to import.
"""

from app.spec.code import AnyEffective, AnySpec, Code, Kind, code_of, kind_of, read_effective
from app.spec.expand import layers_of
from app.spec.inputs import InputColumn, input_shape_of, inputs_of
from app.spec.job import EffectiveSpec, JobSpec
from app.spec.layers import Layer, Shape, walk
from app.spec.parse import parse_job, parse_script, parse_spec
from app.spec.parts import Parts, part_sizes
from app.spec.problems import InvalidSpec, NotEnabled, SpecProblem
from app.spec.python_model import PythonModel
from app.spec.resolve import resolve
from app.spec.script import (
    EffectiveMonitor,
    EffectiveScript,
    EffectiveScriptSpec,
    Environment,
    Monitor,
    Script,
    ScriptSpec,
    resolve_script,
)
from app.spec.shapes import LayerShape, ShapeProblem, infer
from app.spec.shared import CommonSpec, DeviceType
from app.spec.summary import Summary, summarise
from app.spec.table import CellAt, Column, DataNote, TableSchema
from app.spec.weights import WeightFacts, weight_facts, weight_shapes

__all__ = [
    "AnyEffective",
    "AnySpec",
    "CellAt",
    "Code",
    "Column",
    "CommonSpec",
    "DataNote",
    "DeviceType",
    "EffectiveMonitor",
    "EffectiveScript",
    "EffectiveScriptSpec",
    "EffectiveSpec",
    "Environment",
    "InputColumn",
    "InvalidSpec",
    "JobSpec",
    "Kind",
    "Layer",
    "LayerShape",
    "Monitor",
    "NotEnabled",
    "Parts",
    "PythonModel",
    "Script",
    "ScriptSpec",
    "Shape",
    "ShapeProblem",
    "SpecProblem",
    "Summary",
    "TableSchema",
    "WeightFacts",
    "code_of",
    "infer",
    "input_shape_of",
    "inputs_of",
    "kind_of",
    "layers_of",
    "parse_job",
    "parse_script",
    "parse_spec",
    "part_sizes",
    "read_effective",
    "resolve",
    "resolve_script",
    "summarise",
    "walk",
    "weight_facts",
    "weight_shapes",
]
