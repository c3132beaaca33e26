"""The wrong versions of `make mutation` are still wrong versions of the source as it is."""

import ast

import pytest
from mutation import MUTATIONS, ROOT, Mutation

PACKAGE = ROOT / "qfl_core"


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: m.name)
def test_a_mutation_changes_one_place_of_the_package_into_other_code(mutation):
    path = mutation.file(PACKAGE)
    source = path.read_text(encoding="utf-8")
    assert ast.dump(ast.parse(source)) != ast.dump(ast.parse(source.replace(mutation.old, mutation.new)))
    assert all((ROOT / "tests" / name.partition("::")[0]).is_file() for name in mutation.tests)


def test_a_fragment_that_is_gone_or_ambiguous_is_told():
    with pytest.raises(LookupError, match="nowhere"):
        Mutation("x", "this is in no module", "", ()).file(PACKAGE)
    with pytest.raises(LookupError, match="must be in qfl_core/algorithm once"):
        Mutation("x", "import numpy as np", "", ()).file(PACKAGE)
