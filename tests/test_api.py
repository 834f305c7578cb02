"""What the packages say may be relied on is there, and importing them is quick."""

from __future__ import annotations

import importlib
import subprocess
import sys
import typing

import pytest

PACKAGES = ("kvspec", "kvref", "kvgpu")


@pytest.mark.parametrize("package", PACKAGES)
def test_every_name_is_there_and_says_what_it_is(package: str) -> None:
    module = importlib.import_module(package)
    assert list(module.__all__) == sorted(module.__all__)
    for name in module.__all__:
        thing = getattr(module, name)
        if typing.get_origin(thing) is None:  # else an alias of a type, which has neither
            assert thing.__name__.split(".")[-1] == name, f"{package}.{name} is {thing!r}"
            assert thing.__doc__, f"{package}.{name} has no docstring"


@pytest.mark.parametrize("package", PACKAGES)
def test_a_name_that_is_not_there_is_an_attribute_error(package: str) -> None:
    module = importlib.import_module(package)
    with pytest.raises(AttributeError, match=rf"module '{package}' has no attribute 'nothing_of_the_kind'"):
        _ = module.nothing_of_the_kind


@pytest.mark.parametrize(
    ("package", "slow"),
    [
        ("kvspec", "pydantic yaml numpy numba torch pytest rich"),
        ("kvref", "numpy numba torch pytest"),
        ("kvgpu", "pydantic yaml numpy numba torch pytest rich"),
        ("kvspec.plugin", "pydantic yaml numpy numba torch kvref kvgpu"),
    ],
)
def test_importing_a_package_imports_nothing_slow(package: str, slow: str) -> None:
    code = f"import sys, {package}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert not set(slow.split()) & set(done.stdout.split())


def test_older_names_still_work() -> None:
    from kvgpu import Fate, RequestOutcome
    from kvspec.observation import TableEntries, TableWords

    assert Fate is RequestOutcome
    assert TableWords is TableEntries
