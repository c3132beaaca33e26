"""The digest of code changes with what the code does, and with nothing else."""

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qfl_core.base import source_code
from qfl_core.base.source_code import code_digest, tree_digest

CODE = '''"""A module."""

import math
from functools import cache


class Circle:
    """A circle."""

    sides = 0

    @cache
    def area(self, radius=1.0, *, scale=2):
        """Return the area."""
        squared = radius**2
        text = f"{squared:.{scale}f} m"
        if squared < 0 or not text:
            return None
        return scale * math.pi * squared


async def later(*names: str) -> dict[str, int]:
    """Wait."""
    return {name: 1 for name in names} | {**{}}
'''

SAME = {
    "a comment": ("    sides = 0", "    sides = 0  # none\n    # at all"),
    "blank lines": ("import math\n", "\n\nimport math\n\n"),
    "quotes": ('f"{squared:.{scale}f} m"', "f'{squared:.{scale}f} m'"),
    "the module's docstring": ('"""A module."""', '"""Another\n\nmodule."""'),
    "the class's docstring": ('"""A circle."""', "'round'"),
    "the method's docstring": ('"""Return the area."""', 'r"""Give."""'),
    "the coroutine's docstring": ('"""Wait."""', '"""Hurry."""'),
    "no docstring": ('        """Return the area."""\n', ""),
    "parentheses": ("radius**2", "(radius ** (2))"),
    "the notation of a number": ("radius=1.0", "radius=1e0"),
    "a line cut in two": ("squared < 0 or not text", "(squared < 0\n            or not text)"),
    "a type comment": ("sides = 0", "sides = 0  # type: int"),
    "joined texts": ('f"{squared:.{scale}f} m"', 'f"{squared:.{scale}f}" f" " "m" f""'),
}

OTHER = {
    "a constant": ("scale=2", "scale=3"),
    "the type of a constant": ("scale=2", "scale=2.0"),
    "the truth of a number": ("sides = 0", "sides = False"),
    "an operator": ("squared < 0", "squared <= 0"),
    "and": ("squared < 0 or not", "squared < 0 and not"),
    "a default that is gone": ("radius=1.0", "radius"),
    "a decorator that is gone": ("    @cache\n", ""),
    "another decorator": ("@cache", "@staticmethod"),
    "a name": ("radius**2", "scale**2"),
    "a method's name": ("def area", "def space"),
    "a keyword-only argument that is not": ("*, scale", "scale"),
    "an annotation": ("*names: str", "*names: int"),
    "swapped statements": (
        '        squared = radius**2\n        text = f"{squared:.{scale}f} m"\n',
        '        text = f"{squared:.{scale}f} m"\n        squared = radius**2\n',
    ),
    "another return": ("return None", "return"),
    "swapped imports": (
        "import math\nfrom functools import cache",
        "from functools import cache\nimport math",
    ),
    "a relative import": ("from functools", "from .functools"),
    "a format": ("{scale}f}", "{scale}g}"),
    "a conversion": ("{squared:", "{squared!r:"),
    "a text of an f-string": ('f} m"', 'f} km"'),
    "no coroutine": ("async def", "def"),
    "no unpacking": ("{**{}}", "{}"),
    "a text after the docstring": ('"""Wait."""', '"""Wait."""\n    "more"'),
}


def changed(old: str, new: str) -> str:
    assert CODE.count(old) == 1
    return CODE.replace(old, new)


@pytest.mark.parametrize("edit", SAME)
def test_how_code_is_written_does_not_matter(edit):
    assert tree_digest(changed(*SAME[edit])) == tree_digest(CODE)


@pytest.mark.parametrize("edit", OTHER)
def test_what_code_does_matters(edit):
    assert tree_digest(changed(*OTHER[edit])) != tree_digest(CODE)


def test_the_digest_is_the_same_under_every_python():
    """A number written down once: every version that runs this test must find it again."""
    assert tree_digest(CODE) == "bc0e35ef7e9a38966b936907c90551b2f42f0735d87963602451948a7ccc9504"


def test_new_optional_fields_of_a_later_python_do_not_matter(monkeypatch):
    before = tree_digest(CODE)
    parse = ast.parse

    def later(source):
        tree = parse(source)
        for node in ast.walk(tree):
            node._fields = ("another", *node._fields, "one_more")
            node.another, node.one_more = None, []
        return tree

    monkeypatch.setattr(source_code.ast, "parse", later)
    assert tree_digest(CODE) == before


def test_windows_line_ends_do_not_matter():
    assert tree_digest(CODE.replace("\n", "\r\n")) == tree_digest(CODE)


def test_a_text_that_is_not_python_is_refused():
    with pytest.raises(SyntaxError):
        tree_digest("def")


def test_a_set_of_files_is_known_by_names_and_code_in_any_order():
    files = {"b.py": "x = 1", "a.py": "y = 2"}
    assert code_digest(files) == code_digest(dict(reversed(files.items())))
    assert code_digest(files) == code_digest(files | {"a.py": '"""New words."""\ny = 2  # two'})
    assert code_digest(files) != code_digest({"a.py": "x = 1", "b.py": "y = 2"})
    assert code_digest(files) != code_digest(files | {"c.py": ""})


LITERALS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(0, allow_nan=False, allow_infinity=False), st.text(), st.binary()
)


@given(LITERALS, LITERALS)
def test_two_constants_have_one_digest_only_where_they_are_the_same(one, other):
    same = type(one) is type(other) and repr(one) == repr(other)
    assert (tree_digest(f"x = {one!r}") == tree_digest(f"x = {other!r}")) == same


@given(
    st.lists(st.sampled_from(["a = 1", "b = a", "a += 2", "del b", "print(a)", "'a'"]), min_size=1, max_size=5),
    st.data(),
)
def test_a_permutation_of_statements_is_other_code(statements, data):
    shuffled = data.draw(st.permutations(statements))
    one, other = ("\n".join(["x = 0", *lines]) for lines in (statements, shuffled))
    assert (tree_digest(one) == tree_digest(other)) == (statements == shuffled)


@pytest.mark.parametrize(
    "path", sorted((Path(__file__).parents[1] / "qfl_core" / "data").glob("*.py")), ids=lambda p: p.name
)
def test_the_tree_printed_again_has_the_same_digest(path):
    source = path.read_text(encoding="utf-8")
    assert tree_digest(ast.unparse(ast.parse(source))) == tree_digest(source)
