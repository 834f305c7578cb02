"""The scenario language: YAML to checked scenarios, with a position for everything that is wrong."""

from spec.language.loader import load_file, load_paths
from spec.language.problems import Problem, ScenarioFileError

__all__ = ["Problem", "ScenarioFileError", "load_file", "load_paths"]
