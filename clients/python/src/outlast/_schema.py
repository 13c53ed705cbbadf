"""The schema's name, which becomes part of the statements."""

from __future__ import annotations

import re

from ._errors import BadName


def checked(schema: str) -> str:
    """The name, if it is one."""
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,39}", schema):
        raise BadName(f"schema {schema!r} is not 1 to 40 of a-z 0-9 _, beginning with a letter")
    return schema
