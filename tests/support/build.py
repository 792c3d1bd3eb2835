"""Where the programs under test are: BQ_BIN and BQ_TEST_BUILD, as scripts/test sets them."""

import os
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
ROOT = TESTS.parent


def build_dir():
    """The build directory whose programs are tested."""
    named = os.environ.get("BQ_TEST_BUILD")
    return Path(named) if named else ROOT / "build" / "dev"


def bq_path():
    """The command bq."""
    named = os.environ.get("BQ_BIN")
    return Path(named) if named else build_dir() / "cli" / "bq"


def tool(name):
    """A helper program of tests/tools. Not built is a failure, never a skip: scripts/test builds everything."""
    path = build_dir() / "tests" / "tools" / name
    assert path.exists(), f"{path} is not built"
    return path


def sanitized():
    """Whether the programs were built with a sanitizer."""
    cache = build_dir() / "CMakeCache.txt"
    try:
        for line in cache.read_text().splitlines():
            if line.startswith("BQ_SANITIZE:"):
                return bool(line.split("=", 1)[1].strip())
    except OSError:
        pass
    return False


def scale(name, default):
    """A number of rounds or bodies: the environment variable NAME, else `default`."""
    return int(os.environ.get(name, default))
