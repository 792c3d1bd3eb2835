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


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory):
    """A Redis server for this process's tests; each test takes databases of it by `redis_layout`."""
    from support.redisserver import Server

    server = Server(tmp_path_factory.mktemp("redis"), "--databases", "16", "--appendonly", "no").start()
    yield server
    server.stop()


@pytest.fixture
def server(tmp_path):
    """Makes Redis servers of the test's own, to be mistreated."""
    from support.redisserver import Server

    made = []

    def make(*options, **more):
        one = Server(tmp_path / f"redis-{len(made)}", *options, **more)
        made.append(one)
        return one.start()

    yield make
    for one in made:
        one.stop()


@pytest.fixture(params=["list", "laravel"])
def layout(request, redis_server):
    """An empty database in each of the two layouts."""
    from support.redisserver import Layout

    redis_server.client().flushall()
    return Layout(redis_server, request.param)


@pytest.fixture
def list_layout(redis_server):
    from support.redisserver import Layout

    redis_server.client().flushall()
    return Layout(redis_server, "list")
