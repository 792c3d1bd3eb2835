"""Awaiting conditions: no test sleeps for a fixed time and hopes."""

import time


def until(condition, timeout=20.0, what="the condition", poll=0.02):
    """Returns the first true value of `condition()`; fails after `timeout` seconds, saying what was awaited."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= deadline:
            described = what() if callable(what) else what
            raise AssertionError(f"waited {timeout} s in vain for {described}")
        time.sleep(poll)
