"""Fill in the tables of docs/claims.md, which stand between comments: every part of every claim with its margin.

python -m tools.claims_page
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pandas as pd

from qfl_core.analysis import CLAIMS
from qfl_core.analysis.claim_tables import claimed_text
from qfl_core.analysis.tables import markdown
from qfl_core.base.errors import AnalysisError
from qfl_core.base.files import write_text
from qfl_core.base.numbers import number, significant

PAGE = Path(__file__).resolve().parent.parent / "docs" / "claims.md"


def filled(page: str, name: str, table: str) -> str:
    """Return the page with this table between ``<!-- name -->`` and ``<!-- end of name -->``."""
    start, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    if page.count(start) != 1 or page.count(end) != 1:
        raise AnalysisError(f"the page must have {start.strip()!r} and {end!r} once each")
    return re.sub(f"{re.escape(start)}.*?{re.escape(end)}", lambda _: f"{start}{table}{end}", page, flags=re.S)


def parts_and_margins() -> str:
    """Return every part with what is claimed, the paper's value and the margin, in Markdown."""
    return markdown(
        pd.DataFrame(
            {
                "part": label,
                "what is measured": part.text,
                "claimed": claimed_text(part.claimed, part.bound),
                "paper": "" if part.paper is None else number(part.paper, 4, signed=True),
                "margin": significant(part.margin, 6) if part.margin else "",
            }
            for claim in CLAIMS
            for label, part in zip(claim.labels, claim.parts, strict=True)
        )
    )


def main() -> int:
    """Write the page again."""
    page = PAGE.read_text(encoding="utf-8")
    write_text(PAGE, filled(page, "parts", parts_and_margins()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
