"""The base of everything that YAML may contain."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Model(BaseModel):
    """Base of everything that YAML may contain: immutable, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
