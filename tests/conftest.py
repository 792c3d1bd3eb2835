"""Shared by every suite: the package `support`, and the fixtures that several suites use."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from support import build  # noqa: E402
from support.cli import Bq  # noqa: E402


@pytest.fixture
def new_bq(tmp_path):
    """Makes a Bq for a URL (by default a fresh database in the test's directory); what it started ends with the test."""
    made = []

    def make(url=None, **more):
        bq = Bq(url or f"sqlite:{tmp_path / 'bq.db'}", tmp_path, **more)
        made.append(bq)
        return bq

    yield make
    for bq in made:
        bq.stop_all()


@pytest.fixture
def shim():
    """The disk that fails (tests/tools/disk_shim.c)."""
    return build.tool("disk_shim.so")
