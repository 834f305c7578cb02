"""What may be said of a KV-cache workload, what may be seen, and how two systems are compared.

The names in ``__all__`` may be relied on; docs/python.md shows them. They are imported when they are first asked for.
"""

from typing import TYPE_CHECKING

from kvspec.lazy import lazy

if TYPE_CHECKING:
    from kvspec import ops
    from kvspec.cli.state_text import show
    from kvspec.config import BufferConfig, ConfigError, LayerConfig, LayerKind, Level, LevelConfig, LevelKind, ManagerConfig
    from kvspec.errors import ErrorKind
    from kvspec.harness.difference import Result, Verdict
    from kvspec.harness.replay import Named, replay
    from kvspec.harness.systems import find_system
    from kvspec.language.loader import load_file
    from kvspec.language.problems import ScenarioFileError
    from kvspec.observation import Observation
    from kvspec.scenario import Scenario
    from kvspec.system import Outcome, Setup, System

__all__ = [
    "BufferConfig",
    "ConfigError",
    "ErrorKind",
    "LayerConfig",
    "LayerKind",
    "Level",
    "LevelConfig",
    "LevelKind",
    "ManagerConfig",
    "Named",
    "Observation",
    "Outcome",
    "Result",
    "Scenario",
    "ScenarioFileError",
    "Setup",
    "System",
    "Verdict",
    "find_system",
    "load_file",
    "ops",
    "replay",
    "show",
]

if not TYPE_CHECKING:
    __getattr__ = lazy(
        __name__,
        {
            "ops": "kvspec.ops",
            "show": "kvspec.cli.state_text",
            "BufferConfig": "kvspec.config",
            "ConfigError": "kvspec.config",
            "LayerConfig": "kvspec.config",
            "LayerKind": "kvspec.config",
            "Level": "kvspec.config",
            "LevelConfig": "kvspec.config",
            "LevelKind": "kvspec.config",
            "ManagerConfig": "kvspec.config",
            "ErrorKind": "kvspec.errors",
            "Result": "kvspec.harness.difference",
            "Verdict": "kvspec.harness.difference",
            "Named": "kvspec.harness.replay",
            "replay": "kvspec.harness.replay",
            "find_system": "kvspec.harness.systems",
            "load_file": "kvspec.language.loader",
            "ScenarioFileError": "kvspec.language.problems",
            "Observation": "kvspec.observation",
            "Scenario": "kvspec.scenario",
            "Outcome": "kvspec.system",
            "Setup": "kvspec.system",
            "System": "kvspec.system",
        },
    )
