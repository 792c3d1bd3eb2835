"""Redis servers of a test's own, the files of the layouts (contract 7.1, 7.2) as a peer reads them, and messages to work."""

import os
import shlex
import signal
import socket
import subprocess
from pathlib import Path

import redis

from .wait import until


def binary():
    """The server under test: $BQ_REDIS_SERVER (tests/brokers/redis.sh binary), else the installed one."""
    return os.environ.get("BQ_REDIS_SERVER", "redis-server")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


URN = "urn:babel:orders:created"


def publish(bq, count, queue="orders"):
    """That many messages; their ids."""
    lines = "".join(f'{{"n":{n}}}\n' for n in range(count))
    return bq.run("publish", "-q", queue, URN, "--lines", input=lines).out.decode().split()


def log_ids(path):
    """A handler that notes the id of each message it runs for, and its file's reader."""
    command = f"printf '%s\\n' \"$BQ_ID\" >>{shlex.quote(str(path))}"
    return command, lambda: path.read_text().split() if path.exists() else []


class Server:
    """One server, on a port of its own. Stopped at the end of the test."""

    def __init__(self, directory, *options, port=None, sentinel=False):
        self.dir, self.options, self.sentinel = Path(directory), list(options), sentinel
        self.dir.mkdir(parents=True, exist_ok=True)
        self.port = port or free_port()
        self.process = None

    def start(self):
        arguments = ["--port", self.port, "--bind", "127.0.0.1", "--dir", self.dir, "--save", "", *self.options]
        if self.sentinel:
            arguments = [self.options[0], "--sentinel"]
        with (self.dir / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [binary(), *map(str, arguments)], stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
        until(self.answers, 20, lambda: f"the server: {(self.dir / 'log').read_text()[-1000:]}")
        return self

    def answers(self):
        assert self.process.poll() is None, (self.dir / "log").read_text()[-1000:]
        try:
            return self.client(socket_timeout=1).ping()
        except redis.AuthenticationError:
            return True
        except redis.RedisError:
            return False

    def client(self, db=0, **more):
        return redis.Redis(host="127.0.0.1", port=self.port, db=db, **more)

    def url(self, db=0, **options):
        query = "&".join(f"{k}={v}" for k, v in options.items())
        return f"redis://127.0.0.1:{self.port}/{db}" + (f"?{query}" if query else "")

    def freeze(self):
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self):
        self.process.send_signal(signal.SIGCONT)

    def kill(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
        if self.process:
            self.process.wait(20)

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()


class Layout:
    """A queue's keys, in either layout."""

    def __init__(self, server, name, db=0):
        self.server, self.name, self.db = server, name, db
        self.redis = server.client(db)

    def url(self, **options):
        if self.name == "laravel":
            options = {"layout": "laravel", **options}
        return self.server.url(self.db, **options)

    def peer(self, **options):
        from babelqueue.redis_transport import RedisTransport

        return RedisTransport(self.server.url(self.db), laravel_compat=self.name == "laravel", **options)

    def ready_key(self, queue):
        return f"queues:{queue}" if self.name == "laravel" else queue

    def ready(self, queue="orders"):
        return self.redis.lrange(self.ready_key(queue), 0, -1)

    def reserved(self, queue="orders"):
        """What is in somebody's hands, bytes as they are stored."""
        if self.name == "laravel":
            return self.redis.zrange(f"queues:{queue}:reserved", 0, -1)
        return self.redis.lrange(f"{queue}:processing", 0, -1)

    def leftovers(self, queue="orders"):
        """Keys of the queue that should be gone once everything is settled."""
        helpers = [":reserved", ":delayed"] if self.name == "laravel" else [":processing", ":processing:deadlines"]
        return [h for h in helpers if self.redis.exists(self.ready_key(queue) + h)]

    def expire_reservations(self, queue="orders"):
        """Time passes: every lease of the queue has run out."""
        key = f"queues:{queue}:reserved" if self.name == "laravel" else f"{queue}:processing:deadlines"
        for member in self.redis.zrange(key, 0, -1):
            self.redis.zadd(key, {member: 1})

    def make_due(self, queue="orders"):
        """Time passes: what is delayed is due."""
        key = f"queues:{queue}:delayed" if self.name == "laravel" else f"{queue}:processing:deadlines"
        for member in self.redis.zrange(key, 0, -1):
            self.redis.zadd(key, {member: 1})


