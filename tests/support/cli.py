"""Running bq: once and to its end, or beside the test."""

import json
import os
import re
import signal
import subprocess

from . import build
from .wait import until

#: Nothing a test starts may outlive this, whatever hangs.
LIMIT = 60


def environment(**more):
    """The environment of a child: this one's without the settings that would change what bq does."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("BQ_")}
    env.update({k: str(v) for k, v in more.items()})
    return env


class Done:
    """What a command that ended left behind."""

    def __init__(self, args, code, out, err):
        self.args, self.code, self.out, self.err = args, code, out, err

    @property
    def lines(self):
        return self.out.splitlines()

    @property
    def json(self):
        return [json.loads(line) for line in self.lines]

    def __repr__(self):
        return f"<bq {' '.join(map(str, self.args))}: exit {self.code}\n{self.out[-2000:]!r}\n{self.err[-2000:]!r}>"


class Bq:
    """The command with one URL, in one directory."""

    def __init__(self, url, cwd, env=None, wrap=()):
        self.url, self.cwd, self.env, self.wrap = url, cwd, dict(env or {}), list(wrap)
        self.running = []

    def _popen(self, args, env, **more):
        return subprocess.Popen(
            [*self.wrap, build.bq_path(), *map(str, args)],
            cwd=self.cwd,
            env=environment(**{"BQ_URL": self.url, **self.env, **(env or {})}),
            **more,
        )

    def run(self, *args, input=b"", env=None, exit=0, timeout=LIMIT):
        """Runs to the end; `exit` is the status it must end with, None: any. `out` and `err` are bytes."""
        data = input.encode() if isinstance(input, str) else input
        process = self._popen(args, env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            out, err = process.communicate(data, timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            raise AssertionError(f"bq did not end within {timeout} s: {Done(args, None, out, err)}") from None
        done = Done(args, process.returncode, out, err)
        if exit is not None:
            assert done.code == exit, f"exit status {done.code}, not {exit}: {done}"
        return done

    def start(self, *args, env=None, stdin=None):
        """Starts it beside the test; stopped at the end of the test whatever happens."""
        number = len(self.running)
        out, err = self.cwd / f"bq-{number}.out", self.cwd / f"bq-{number}.err"
        with out.open("wb") as to_out, err.open("wb") as to_err:
            process = self._popen(args, env, stdin=stdin or subprocess.DEVNULL, stdout=to_out, stderr=to_err)
        running = Running(args, process, out, err)
        self.running.append(running)
        return running

    def stop_all(self):
        for running in self.running:
            running.kill()

    # -- what tests ask often

    def stats(self, queue):
        return self.run("stats", "-q", queue, "--json").json[0]

    def peek(self, queue):
        """The bodies on a queue."""
        return self.run("peek", "-q", queue).lines


class Running:
    def __init__(self, args, process, out, err):
        self.args, self.process, self._out, self._err = args, process, out, err

    @property
    def pid(self):
        return self.process.pid

    @property
    def out(self):
        return self._out.read_bytes()

    @property
    def err(self):
        return self._err.read_bytes()

    @property
    def alive(self):
        return self.process.poll() is None

    def signal(self, number):
        if self.alive:
            self.process.send_signal(number)

    def kill(self):
        """SIGKILL, also when it is stopped."""
        if self.alive:
            self.process.kill()
        self.process.wait(timeout=LIMIT)
        if self.process.stdin:
            try:
                self.process.stdin.close()
            except OSError:
                pass

    def stop(self, exit=0, timeout=LIMIT):
        """SIGTERM, and its clean end."""
        self.signal(signal.SIGTERM)
        return self.wait(exit, timeout)

    def wait(self, exit=0, timeout=LIMIT):
        try:
            code = self.process.wait(timeout=timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"bq did not end within {timeout} s: {self}") from None
        if exit is not None:
            assert code == exit, f"exit status {code}, not {exit}: {self}"
        return Done(self.args, code, self.out, self.err)

    def until_err(self, pattern, timeout=20.0):
        """Waits for a line on standard error."""
        return until(lambda: re.search(pattern, self.err), timeout, lambda: f"{pattern!r} in {self}")

    def __repr__(self):
        return f"<bq {' '.join(map(str, self.args))}: {self.process.poll()}\n{self.out[-1000:]!r}\n{self.err[-2000:]!r}>"
