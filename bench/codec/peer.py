"""The Python peer as a contestant of bench/codec: reads `VERB COUNT PATH` lines, does it, answers with nanoseconds.

Verbs: accept = decode, accepts and urn; poison = poison_cause; rewrite = decode, attempts + 1, encode. The body is text
already: reading it off a broker and decoding its bytes is not counted."""
import sys
import time

from babelqueue.codec import EnvelopeCodec as Codec


def accept(body):
    envelope = Codec.decode(body)
    return Codec.accepts(envelope), Codec.urn(envelope)


def rewrite(body):
    envelope = Codec.decode(body)
    envelope["attempts"] += 1
    return Codec.encode(envelope)


VERBS = {"accept": accept, "poison": Codec.poison_cause, "rewrite": rewrite}
bodies = {}
for line in sys.stdin:
    verb, count, path = line.split(" ", 2)
    path = path.strip()
    if path not in bodies:
        text = open(path, encoding="utf-8").read()
        bodies[path] = text.splitlines() if path.endswith(".jsonl") else [text]
    run, work, left = VERBS[verb], bodies[path], int(count)
    start = time.perf_counter_ns()
    while left > 0:
        for body in work[:left]:
            run(body)
        left -= len(work)
    print(time.perf_counter_ns() - start, flush=True)
