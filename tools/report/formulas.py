"""TeX formulas as MathML, which browsers draw without any script."""

from __future__ import annotations

import re
from html import unescape
from xml.etree.ElementTree import Element, tostring

from latex2mathml.converter import convert_to_element
from markupsafe import Markup

#: Names of functions that the library writes without the space after them, or does not know.
_FUNCTIONS = re.compile(r"\\(arg|exp|log)(?![A-Za-z])")
#: The space around a function's name, as TeX sets it.
_SPACE = {"lspace": "0.1em", "rspace": "0.17em"}


def formula(tex: str, display: bool = False) -> Markup:
    """Return the formula as a ``<math>`` element, or the TeX itself in ``<code>`` where a part of it is not known."""
    try:
        named = _FUNCTIONS.sub(r"\\operatorname{\1}", tex)
        element = convert_to_element(named, display="block" if display else "inline")
        for part in element.iter():
            _finish(part)
    except Exception:  # the library's errors have no class in common, and a formula must not stop the report
        return Markup('<code class="tex">{}</code>').format(tex)
    del element.attrib["xmlns"]  # HTML needs none
    element.set("aria-label", tex)
    return Markup(tostring(element, encoding="unicode", short_empty_elements=False))


def _finish(part: Element) -> None:
    """Give an element plain text, which is escaped when it is written, and the spaces of TeX."""
    part.text = unescape(part.text or "")
    if part.text.startswith("\\"):
        raise ValueError(f"unknown command {part.text}")
    if part.text in ("±", ";"):
        part.tag = "mo"
    if part.text == "‖":
        part.set("stretchy", "false")
    if part.tag == "mo" and part.text.isalpha():
        part.attrib.update(_SPACE)
