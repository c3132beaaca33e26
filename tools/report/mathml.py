"""TeX to MathML, which browsers draw without any library: the part of TeX that notebooks and the notation use.

What is not known raises :class:`ValueError`; :func:`mathml` then shows the TeX itself, which stays readable.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

_TOKEN = re.compile(r"\s*(\\[A-Za-z]+|\\.|[0-9]+(?:\.[0-9]+)?|\S)")
#: TeX and HTML give Greek letters the same names.
_GREEK = (
    *("alpha", "beta", "gamma", "delta", "epsilon", "eta", "theta", "kappa", "lambda", "mu", "nu", "xi", "pi", "rho"),
    *("sigma", "tau", "phi", "chi", "psi", "omega", "Gamma", "Delta", "Theta", "Lambda", "Pi", "Sigma", "Phi", "Omega"),
)
_OPERATORS = {
    "pm": "±",
    "cdot": "·",
    "times": "×",
    "le": "≤",
    "ge": "≥",
    "ne": "≠",
    "approx": "≈",
    "in": "∈",
    "mapsto": "↦",
    "leftarrow": "←",
    "rightarrow": "→",
    "top": "⊤",
    "star": "⋆",
    "lVert": "‖",
    "rVert": "‖",
    "{": "{",
    "}": "}",
}
_WORDS = ("arg", "clip", "exp", "log", "max", "min")
_LIMITS = ("sum", "min", "max")
_SPACES = {",": "0.17em", ";": "0.28em", "quad": "1em", "qquad": "2em", " ": "0.33em"}
_SIZES = ("big", "Big", "bigl", "bigr", "Bigl", "Bigr")
_SCRIPT = {"L": "ℒ"}


def mathml(tex: str, display: bool = False) -> str:
    """Return the formula as a ``<math>`` element, or the TeX in ``<code>`` where it is not all known."""
    try:
        inside = _row(_Tokens(tex), None)
    except ValueError:
        return f'<code class="tex">{html.escape(tex)}</code>'
    kind = ' display="block"' if display else ""
    return f'<math{kind} aria-label="{html.escape(tex)}">{inside}</math>'


class _Tokens:
    """The formula's tokens, with one looked ahead."""

    def __init__(self, tex: str):
        self._rest: Iterator[str] = (match[1] for match in _TOKEN.finditer(tex.strip()))
        self.next: str | None = next(self._rest, None)

    def take(self) -> str:
        """Return the next token and go on; the end is an error."""
        if self.next is None:
            raise ValueError("the formula ends too early")
        token, self.next = self.next, next(self._rest, None)
        return token


def _row(tokens: _Tokens, end: str | None) -> str:
    """Read up to ``end`` and return one element."""
    parts = []
    while tokens.next != end:
        parts.append(_scripted(tokens))
    if end is not None:
        tokens.take()
    return parts[0] if len(parts) == 1 else f"<mrow>{''.join(parts)}</mrow>"


def _scripted(tokens: _Tokens) -> str:
    """Read an atom with its sub- and superscript."""
    limits = (tokens.next or "").removeprefix("\\") in _LIMITS
    base, scripts = _atom(tokens), {}
    while tokens.next in ("_", "^"):
        sign = tokens.take()
        if sign in scripts:
            raise ValueError(f"two {sign} at one atom")
        scripts[sign] = _atom(tokens)
    if not scripts:
        return base
    names = {"_": "munder" if limits else "msub", "^": "mover" if limits else "msup"}
    name = names[next(iter(scripts))] if len(scripts) == 1 else "munderover" if limits else "msubsup"
    return f"<{name}>{base}{''.join(scripts[sign] for sign in '_^' if sign in scripts)}</{name}>"


def _atom(tokens: _Tokens) -> str:
    token = tokens.take()
    if token == "{":
        return _row(tokens, "}")
    if token.startswith("\\"):
        return _command(token[1:], tokens)
    if token[0].isdigit():
        return f"<mn>{token}</mn>"
    if token.isalpha():
        return f"<mi>{token}</mi>"
    if token in "}_^&#$%":
        raise ValueError(f"{token} where an atom is needed")
    return _operator({"-": "−", "*": "∗"}.get(token, token))


def _command(name: str, tokens: _Tokens) -> str:
    if name in _GREEK:
        return f"<mi>{html.unescape(f'&{name};')}</mi>"
    if name in _OPERATORS:
        return _operator(_OPERATORS[name])
    if name in _WORDS:
        return f'<mo lspace="0.1em" rspace="0.17em">{name}</mo>'
    if name in _SPACES:
        return f'<mspace width="{_SPACES[name]}"></mspace>'
    if name in _SIZES:
        size = "1.7em" if name[0] == "B" else "1.2em"
        sign = html.escape(tokens.take())
        return f'<mo minsize="{size}" maxsize="{size}">{sign}</mo>'
    if name == "sum":
        return "<mo>∑</mo>"
    if name in ("frac", "tfrac"):
        style = ' displaystyle="false"' if name == "tfrac" else ""
        return f"<mfrac{style}>{_atom(tokens)}{_atom(tokens)}</mfrac>"
    if name == "sqrt":
        return f"<msqrt>{_atom(tokens)}</msqrt>"
    if name == "bar":
        return f'<mover accent="true">{_atom(tokens)}<mo stretchy="false">¯</mo></mover>'
    if name in ("mathrm", "mathcal"):
        letters = _letters(tokens)
        if name == "mathcal":
            return "".join(f"<mi>{_SCRIPT[letter]}</mi>" for letter in _known(letters, _SCRIPT))
        return f'<mi mathvariant="normal">{letters}</mi>'
    raise ValueError(f"unknown command {name}")


def _letters(tokens: _Tokens) -> str:
    """Read ``{letters}``."""
    if tokens.take() != "{":
        raise ValueError("letters in braces are needed")
    letters = ""
    while tokens.next != "}":
        letters += tokens.take()
    tokens.take()
    if not letters.isalpha():
        raise ValueError(f"{letters!r} is not letters")
    return letters


def _known(letters: str, table: dict[str, str]) -> str:
    if unknown := set(letters) - set(table):
        raise ValueError(f"no script letter {unknown}")
    return letters


def _operator(sign: str) -> str:
    stretchy = ' stretchy="false"' if sign in "()[]{}|‖" else ""
    return f"<mo{stretchy}>{html.escape(sign)}</mo>"
