from __future__ import annotations

import re
from pathlib import Path

from outlast import OutlastError
from outlast._errors import STATES, translate

ROOT = Path(__file__).parents[3]


def test_every_sqlstate_that_the_schema_raises_has_its_class_and_every_code_its_page() -> None:
    files = [file for folder in ("functions", "migrations") for file in (ROOT / "crates/outlast-postgres" / folder).glob("*.sql")]
    raised = {state for file in files for state in re.findall(r"errcode = '(OL\d{3})'", file.read_text())}
    assert len(raised) > 10, "they are found"
    assert raised - STATES.keys() == set()
    for _, code in STATES.values():
        if code is not None:
            assert (ROOT / f"docs/errors/{code}.md").read_text().startswith(f"# {code}: ")


def test_a_state_of_ours_that_is_newer_than_this_package_is_an_error_of_ours_and_anothers_is_not() -> None:
    newer = Exception("why")
    newer.sqlstate = "OL099"  # type: ignore[attr-defined]
    newer.hint = "do this"  # type: ignore[attr-defined]
    ours = translate(newer)
    assert type(ours) is OutlastError and ours.state == "OL099" and str(ours) == "why; do this"
    newer.sqlstate = "40001"  # type: ignore[attr-defined]
    assert translate(newer) is None
    assert translate(OSError()) is None
