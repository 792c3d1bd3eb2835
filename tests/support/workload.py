"""tests/tools/disk_workload on a disk that fails."""

import subprocess

from . import build, disk
from .cli import environment


class Workload:
    """disk_workload on a directory whose disk is watched."""

    def __init__(self, shim, tmp_path, count, options=""):
        self.shim, self.base, self.count, self.options = shim, tmp_path, count, options

    def run(self, name, tolerant=False, **settings):
        """Runs in a directory of its own; (the directory, the process that ended)."""
        home = self.base / name
        home.mkdir()
        done = subprocess.run(
            [
                build.tool("disk_workload"),
                f"sqlite:{home / 'bq.db'}{self.options}",
                home / "marks",
                str(self.count),
                *(["tolerant"] if tolerant else []),
            ],
            env=environment(**disk.environment(self.shim, home, exempt="marks", **settings)),
            capture_output=True,
            timeout=60,
        )
        return home, done

    def traced(self):
        """The trace of an undisturbed run, marks included."""
        trace = self.base / "trace"
        _home, done = self.run("traced", trace=trace)
        assert done.returncode == 0, done.stderr.decode()
        return disk.read_trace(trace)

    def operations(self):
        """How many operations on the database such a run makes."""
        return sum(1 for op in self.traced() if op.name != "marks")
