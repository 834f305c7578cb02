"""Import single modules out of the unpacked sources of a package, with everything else of it standing in as names alone."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock


class _Names(type):
    """Of a class that stands in: each of its attributes is its own name."""

    def __getattr__(cls, name: str) -> str:
        if name.startswith("__"):
            raise AttributeError(name)
        return f"{cls.__name__}.{name}"


class _StandIn(types.ModuleType):
    """A module in which every name is there: a class that takes anything, or a function that does nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made: Any = MagicMock(name=f"{self.__name__}.{name}")
        if name[:1].isupper():
            made = _Names(name, (), {"__init__": lambda self, *args, **kwargs: self.__dict__.update(kwargs)})
        setattr(self, name, made)
        return made


class Sources(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds modules of a package in a folder of sources.

    ``real``: modules that are taken as they are, with what is below them. ``absent``: other packages that need not be installed.
    ``given``: by module, names that are more than a stand-in.
    """

    def __init__(
        self, root: Path, package: str, real: Iterable[str], absent: Iterable[str], given: Mapping[str, Mapping[str, Any]]
    ) -> None:
        """``root``: the folder that has the package."""
        self._root = root
        self._package = package
        self._real = tuple(real)
        self._absent = frozenset(absent)
        self._given = given

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The real module, or one that stands in."""
        top = fullname.partition(".")[0]
        if top == self._package:
            if any(fullname == one or fullname.startswith(f"{one}.") for one in self._real):
                folder = self._root.joinpath(*fullname.split(".")[:-1])
                return importlib.machinery.PathFinder.find_spec(fullname, [str(folder)])
        elif top not in self._absent or importlib.machinery.PathFinder.find_spec(fullname, path) is not None:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """A module that stands in."""
        module = _StandIn(spec.name)
        module.__path__ = []
        for name, value in self._given.get(spec.name, {}).items():
            setattr(module, name, value)
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing runs."""


def _length(tokens: Sequence[int] | None, embeds: object) -> int:
    return len(tokens or ())


def vllm_sources(root: Path) -> Sources:
    """The manager of vLLM and what it needs, out of its source distribution."""
    real = ["vllm.v1.core", "vllm.v1.kv_cache_interface", "vllm.v1.kv_cache_spec_registry", "vllm.v1.kv_cache_layout"]
    real += ["vllm.v1.request", "vllm.v1.utils", "vllm.v1.hisparse.block_pool", "vllm.utils.math_utils", "vllm.utils.hashing"]
    absent = ["msgspec", "zmq", "regex", "cbor2", "xxhash", "uvloop"]
    given: dict[str, dict[str, Any]] = {
        "vllm.utils": {"length_from_prompt_token_ids_or_embeds": _length},
        "vllm.v1.structured_output.request": {"StructuredOutputRequest": MagicMock(from_sampling_params=lambda params: None)},
        "vllm.sampling_params": {"SamplingParams": _Params},
    }
    return Sources(root, "vllm", real, absent, given)


def sglang_sources(root: Path) -> Sources:
    """The radix cache of SGLang and its allocator, out of its wheel."""
    cache = "sglang.srt.mem_cache"
    names = ["radix_cache", "base_prefix_cache", "cache_init_params", "evict_policy", "events", "utils"]
    names += ["allocator.base", "allocator.paged"]
    given: dict[str, dict[str, Any]] = {
        "sglang.srt.utils": {"is_hip": lambda: False, "get_bool_env_var": lambda name: True},
    }
    return Sources(root, "sglang", [f"{cache}.{name}" for name in names], ["triton", "sgl_kernel"], given)


class _Params:
    """As much of ``SamplingParams`` as a request looks at."""

    def __init__(self, max_tokens: int) -> None:
        self.max_tokens = max_tokens
        self.extra_args = None
        self.skip_reading_prefix_cache = False
        self.prompt_logprobs = None


def install(sources: Sources) -> None:
    """Have them found before anything else."""
    sys.meta_path.insert(0, sources)
