"""The Python peer's side of bench/redis/run: peer.py publish|work PORT QUEUE SIZE COUNT. Prints messages per second."""

import sys
import time

from babelqueue import BabelQueue
from babelqueue.redis_transport import RedisTransport

what, port, queue, size, count = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
app = BabelQueue(transport=RedisTransport(f"redis://127.0.0.1:{port}/0"), queue=queue)
data = {"text": "x" * max(10, size - 240)}


@app.handler("urn:babel:orders:created")
def handle(data, meta):
    pass


start = time.monotonic()
if what == "publish":
    for _ in range(count):
        app.publish("urn:babel:orders:created", data, queue=queue)
else:
    assert app.consume(max_messages=count, timeout=1, handle_signals=False) == count
print(round(count / (time.monotonic() - start)))
