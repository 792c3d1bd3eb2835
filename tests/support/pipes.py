"""A command that is talked to while it runs: lines in, lines out, each awaited."""

import queue
import signal
import subprocess
import threading

from .cli import LIMIT, Done


class Talk:
    """`bq ARGS` with pipes on all three streams. What it says is collected by threads, so that it never blocks."""

    def __init__(self, bq, *args, env=None, **more):
        self.args = args
        self.process = bq._popen(args, env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)
        self.out, self.err = [], []
        self._lines = queue.Queue()
        self._threads = [
            threading.Thread(target=self._collect, args=(self.process.stdout, self.out, self._lines), daemon=True),
            threading.Thread(target=self._collect, args=(self.process.stderr, self.err, None), daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    @staticmethod
    def _collect(stream, lines, events):
        for line in stream:
            lines.append(line.rstrip(b"\n"))
            if events:
                events.put(lines[-1])
        if events:
            events.put(None)

    def write(self, text):
        self.process.stdin.write(text.encode() if isinstance(text, str) else text)
        self.process.stdin.flush()

    def line(self, timeout=20):
        """The next line on stdout; None at its end."""
        try:
            return self._lines.get(timeout=timeout)
        except queue.Empty:
            raise AssertionError(f"no line within {timeout} s: {self}") from None

    def end_input(self):
        self.process.stdin.close()

    def signal(self, number=signal.SIGTERM):
        self.process.send_signal(number)

    def wait(self, exit=0, timeout=LIMIT):
        try:
            code = self.process.wait(timeout=timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"bq did not end within {timeout} s: {self}") from None
        for thread in self._threads:
            thread.join(timeout)
        if exit is not None:
            assert code == exit, f"exit status {code}, not {exit}: {self}"
        return Done(self.args, code, b"\n".join(self.out), b"\n".join(self.err))

    def __enter__(self):
        return self

    def __exit__(self, *_what):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for thread in self._threads:
            thread.join(LIMIT)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            try:
                stream.close()
            except OSError:
                pass

    def __repr__(self):
        return f"<bq {' '.join(map(str, self.args))}: {self.process.poll()}\n{self.out[-5:]}\n{self.err[-20:]}>"
