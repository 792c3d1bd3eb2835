"""scripts/test: what can be seen of it without running all tests."""

import re
import subprocess

from support import build


def test_the_watchdog_of_a_phase_goes_quietly(tmp_path):
    """A phase's end kills its watchdog; the shell must not report that death in the middle of the results."""
    text = (build.ROOT / "scripts" / "test").read_text()
    functions = [re.search(rf"^{name}\(\) \{{.*?^\}}", text, re.M | re.S).group() for name in ("phase", "record", "kill_tree")]
    calls = [f"phase p{n} 30 sleep 0.0{n}" for n in range(8)]
    script = "\n".join(["set -Eeuo pipefail", f"logs='{tmp_path}'", "began=$(date +%s.%N)", *functions, *calls])
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and len(done.stderr.splitlines()) == 8, done.stderr
    assert all(re.match(r"ok +p\d +\d+\.\d s$", line) for line in done.stderr.splitlines()), done.stderr
