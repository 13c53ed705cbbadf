from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from textwrap import indent

from drivers import new_database

PACKAGE = Path(__file__).parents[1]


def test_the_code_of_the_readme_is_that_of_the_examples() -> None:
    files = [file.read_text() for file in (PACKAGE / "example").glob("*.py")]
    blocks = re.findall(r"```python\n(.*?)```", (PACKAGE / "README.md").read_text(), re.DOTALL)
    assert len(blocks) == 2
    for code in blocks:
        assert any(code in file or indent(code, " " * 8) in file for file in files), code


def test_the_first_example_of_the_readme_says_hello() -> None:
    env = os.environ | {"DATABASE_URL": new_database(), "PYTHONPATH": str(PACKAGE / "src")}
    program = [sys.executable, str(PACKAGE / "example/hello.py")]
    said = subprocess.run(program, env=env, capture_output=True, text=True, timeout=30, check=True)
    assert said.stdout == "hello Ada\n"
