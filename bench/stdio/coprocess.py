"""The smallest coprocess in Python that reads each message: a line in, an answer out, flushed when no more is there.

    bq work -q orders --handle-stdio 'exec python3 -S coprocess.py'

Each line is parsed by json.loads, as a real handler would. `--blind` only takes the number from the line's head, which
shows what bq itself costs.
"""

import json
import os
import sys


def handle(message):
    """A handler would be here. None: well done; else a dictionary with error, exception, ..."""


def answer(line):
    message = json.loads(line)
    failed = handle(message)
    if failed is None:
        return b'{"n":%d,"ok":true}\n' % message["n"]
    return json.dumps({"n": message["n"], **failed}).encode() + b"\n"


def blind(line):
    return line[: line.index(b",")] + b',"ok":true}\n'


def main():
    one = blind if "--blind" in sys.argv[1:] else answer
    rest = b""
    while True:
        piece = os.read(0, 1 << 20)
        if not piece:
            return
        lines = (rest + piece).split(b"\n") if rest else piece.split(b"\n")
        rest = lines.pop()
        if lines:
            out = b"".join([one(line) for line in lines])
            while out:
                out = out[os.write(1, out) :]


main()
