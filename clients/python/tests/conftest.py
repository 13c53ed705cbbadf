from __future__ import annotations

import pytest
from drivers import migrated


@pytest.fixture(scope="session")
def database() -> str:
    return migrated()
