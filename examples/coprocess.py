#!/usr/bin/env python3
"""A handler for `bq work --handle-stdio`: one process that works many messages.

bq writes a message a line and reads an answer a line, in any order. Up to the prefetch of messages
are given without waiting for an answer, so that a program with threads or an event loop may work on
all of them; this one takes them one after another. It ends when its stdin ends.
"""

import json
import sys


class Retry(Exception):
    """Try again, after so many milliseconds."""

    def __init__(self, text, after_ms):
        super().__init__(text)
        self.after_ms = after_ms


class Rejected(Exception):
    """Trying again cannot help: to the dead-letter queue at once."""


def order_created(data, message):
    if "order" not in data:
        raise Rejected("there is no order number")
    if data["order"] == 2 and message["attempts"] == 0:
        raise Retry("the warehouse did not answer", after_ms=20)
    # stdout belongs to the answers. In one piece, since bq writes to the same stderr.
    sys.stderr.write(f"order {data['order']}: shipped\n")


HANDLERS = {"urn:babel:orders:created": order_created}


def answer(message):
    handler = HANDLERS.get(message["urn"])
    try:
        if handler is None:
            raise Rejected(f"nobody knows {message['urn']}")
        handler(message["envelope"]["data"], message)
    except Retry as error:
        return {"error": str(error), "exception": "Retry", "retry_after_ms": error.after_ms}
    except Rejected as error:
        return {"error": str(error), "exception": "Rejected", "reject": True}
    except Exception as error:  # the message has failed, not the worker
        return {"error": str(error), "exception": type(error).__name__}
    return {"ok": True}


for line in sys.stdin:
    message = json.loads(line)
    print(json.dumps({"n": message["n"], **answer(message)}), flush=True)
