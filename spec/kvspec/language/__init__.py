"""The scenario language: YAML to checked scenarios, with a position for everything that is wrong."""

from kvspec.language.loader import load_file, load_paths
from kvspec.language.problems import Problem, ScenarioFileError

__all__ = ["Problem", "ScenarioFileError", "load_file", "load_paths"]
