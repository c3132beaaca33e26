"""The base of every frozen config: each field has a default, a check and a meaning, and every value is checked.

@dataclass(frozen=True, kw_only=True)
class Colours(Settings):
    red: int = setting(0, integer(0, 255), "share of red")
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from qfl_core.base.checks import Check
from qfl_core.base.errors import ConfigError, did_you_mean


def setting(default: Any, check: Check, doc: str) -> Any:
    """Declare one field of a config.

    Parameters
    ----------
    default : the value where nothing is given; it is checked like a given one.
    check : a function ``(name, value)`` that returns the value in its plain type or raises a ConfigError.
    doc : what the field means, in one sentence.
    """
    return dataclasses.field(default=default, metadata={"doc": doc, "check": check})


@dataclass(frozen=True, kw_only=True)
class Settings:
    """A config whose values were all checked when it was built; equal configs have equal digests."""

    #: What error messages call one field.
    noun: ClassVar[str] = "setting"
    #: Fields that are left out of the digest while they have their default.
    later: ClassVar[tuple[str, ...]] = ()

    def __new__(cls, **values: Any) -> Self:
        """Refuse unknown names with the closest known one, before ``__init__`` sees them."""
        cls._refuse_unknown(values)
        return super().__new__(cls)

    def __post_init__(self) -> None:
        for name in self.describe():
            self._check(name)

    def _check(self, name: str) -> None:
        """Replace a field's value by what its check returns."""
        object.__setattr__(self, name, self.checked(name, getattr(self, name)))

    @classmethod
    def checked(cls, name: str, value: Any) -> Any:
        """Return the value of one field in its plain type, or raise a ConfigError."""
        check: Check = cls.__dataclass_fields__[name].metadata["check"]
        return check(name, value)

    @classmethod
    def describe(cls) -> dict[str, str]:
        """Return the meaning of every field, in the order of declaration."""
        return {field.name: field.metadata["doc"] for field in dataclasses.fields(cls)}

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain JSON types."""
        values = {name: getattr(self, name) for name in self.describe()}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Build a config from a mapping; an unknown key is an error that names the closest field."""
        if not isinstance(values, Mapping):
            raise ConfigError(f"{cls.noun}s are a mapping of fields to values, got {type(values).__name__}")
        cls._refuse_unknown(values)  # a key may be a number here, which ** would refuse with a worse message
        return cls(**values)

    @classmethod
    def _refuse_unknown(cls, values: Mapping[Any, Any]) -> None:
        known = cls.describe()
        for key in values:
            if key not in known:
                hint = did_you_mean(key, known)
                raise ConfigError(f"unknown {cls.noun} {key!r}{hint}; known {cls.noun}s: {', '.join(known)}")

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON: the config's identity in file names and records."""
        defaults = {field.name: field.default for field in dataclasses.fields(self) if field.name in self.later}
        told = {name: value for name, value in self.to_dict().items() if defaults.get(name, ...) != value}
        canonical = json.dumps(told, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()
