"""What disk_workload's marks allow a message to be: the states it may be found in after a crash at this moment."""

from collections import defaultdict

ABSENT = "gone"


class Marks:
    def __init__(self):
        self.confirmed = defaultdict(lambda: ABSENT)  # id -> the last state that was confirmed
        self.open = defaultdict(set)  # id -> states that were submitted since
        self.history = defaultdict(lambda: {ABSENT})  # id -> every state it ever may have been in
        self.unknown = set()  # ids with an operation of unknown outcome since the last confirmation
        self.repeated = set()  # ids whose publish was tried again after an unknown outcome: there may be two

    def line(self, line):
        what, id, state = line.split(" ", 2)
        if what == "submit":
            if id in self.unknown and state == "orders 0":
                self.repeated.add(id)
            self.open[id].add(state)
            self.history[id].add(state)
        elif what == "confirm":
            self.confirmed[id] = state
            self.open[id].clear()
            self.unknown.discard(id)
        elif what == "refuse":
            # Certainly not done; but an earlier try of the same may have been.
            if id not in self.unknown:
                self.open[id].clear()
        elif what == "unknown":
            self.unknown.add(id)
        else:
            raise AssertionError(f"unknown mark {line!r}")

    def read(self, text):
        for line in text.splitlines():
            self.line(line)
        return self

    def check(self, messages, durable=True):
        """Every message is where its marks allow, once, and there are no others. `durable`: what was confirmed holds;
        otherwise (a cut of a database that does not sync each commit) an earlier state is as good, but still one."""
        found = defaultdict(list)
        for message in messages:
            name = {"orders": "orders", "orders.dlq": "dead"}[message.queue]
            found[message.id].append(f"{name} {message.attempts}")
        for id in set(found) | set(self.history):
            states = found.get(id) or [ABSENT]
            twice = id in self.repeated
            assert len(states) == 1 or twice, f"{id} is there more than once: {states}"
            allowed = {self.confirmed[id]} | self.open[id] if durable and not twice else self.history[id]
            assert set(states) <= allowed, f"{id} is {states}; allowed: {sorted(allowed)}"
