"""YAML -> Spec -> axes, cells, constraints."""

from matrix.spec.problems import Problem, SpecError
from matrix.spec.schema import schema
from matrix.spec.spec import Launch, Spec, load_spec

__all__ = ["Launch", "Problem", "Spec", "SpecError", "load_spec", "schema"]
