"""A digest that grows while values are read, and the place where the reading is: a refusal names it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

from qfl_core.base.errors import ConfigError


class Digest:
    """The SHA-256 of all pieces that were written. An object that was met before is written as its number."""

    def __init__(self) -> None:
        self._sha = hashlib.sha256()
        self._met: dict[object, int] = {}
        self._kept: list[object] = []  # because an object in ``_met`` is known by its address
        self._trail: list[str] = []

    def hexdigest(self) -> str:
        """Return the digest of what was written so far."""
        return self._sha.hexdigest()

    def write(self, what: str, content: str | bytes = b"") -> None:
        """Add a piece to the digest. Its length is in front, so two pieces never read like one."""
        content = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
        self._sha.update(f"{what} {len(content)}:".encode())
        self._sha.update(content)

    def is_known(self, key: object, value: object) -> bool:
        """Return whether this object was read before, and write its number in that case; so cycles end."""
        if key in self._met:
            self.write("again", str(self._met[key]))
            return True
        self._met[key] = len(self._met)
        self._kept.append(value)
        return False

    @contextmanager
    def inside(self, place: str) -> Iterator[None]:
        """Name the place that is being read inside the ``with`` block."""
        self._trail.append(place)
        yield
        self._trail.pop()

    def refusal(self, what: str, why: str) -> ConfigError:
        """Return the error that says what cannot be identified, where it was found, and why."""
        place = f" ({', '.join(self._trail)})" if self._trail else ""
        return ConfigError(f"a plugin cannot be identified: {what}{place}, because {why}")
