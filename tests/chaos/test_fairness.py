"""Several processes on one file: all of them get on. The figures are printed; only starvation fails the test."""

import re
import subprocess

import pytest

from support import build
from support.cli import environment
from support.wait import until

PROCESSES = 8


@pytest.mark.slow
@pytest.mark.native
def test_no_process_starves_when_it_reserves(tmp_path, new_bq):
    """Eight processes reserve and acknowledge one by one: each gets a share, and no single reserve takes seconds."""
    url, each = f"sqlite:{tmp_path / 'bq.db'}", build.scale("BQ_FAIR_RESERVES", 150)
    total = PROCESSES * each
    lines = "".join('{"n":%d}\n' % n for n in range(total))
    assert len(new_bq(url).run("publish", "-q", "orders", "--lines", "urn:x", input=lines).lines) == total
    probes = [
        subprocess.Popen(
            [build.tool("reserve"), url, "orders", str(total)], env=environment(), stdout=subprocess.PIPE, text=True
        )
        for _ in range(PROCESSES)
    ]
    shares, worst = [], 0
    for probe in probes:
        out, _ = probe.communicate(timeout=90)
        assert probe.returncode == 0, out
        taken, p50, p99, longest = map(int, re.match(r"taken (\d+) p50 (\d+) p99 (\d+) max (\d+)", out).groups())
        print(f"taken {taken}, a reserve: p50 {p50 / 1000:.1f} ms, p99 {p99 / 1000:.1f} ms, max {longest / 1000:.1f} ms")
        shares.append(taken)
        worst = max(worst, longest)
    assert sum(shares) == total
    assert min(shares) >= each / 10, shares
    assert worst < 5_000_000, f"a reserve took {worst / 1e6:.1f} s"


@pytest.mark.slow
def test_no_worker_starves(tmp_path, new_bq):
    """Eight `bq work` on one queue: each of them handles messages."""
    total = build.scale("BQ_FAIR_MESSAGES", 1600)
    bq = new_bq()
    workers = [bq.start("work", "-q", "orders", "--print", "--format", "data", "--prefetch", 4) for _ in range(PROCESSES)]
    bq.run("publish", "-q", "orders", "--lines", "urn:x", input="".join('{"n":%d}\n' % n for n in range(total)))
    until(lambda: sum(w.out.count(b"\n") for w in workers) >= total, 60, lambda: f"{total} messages")
    shares = [w.stop().out.count(b"\n") for w in workers]
    print(shares)
    assert sum(shares) == total
    assert min(shares) >= total / PROCESSES / 20, shares
