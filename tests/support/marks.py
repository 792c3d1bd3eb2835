"""What disk_workload's marks allow a message to be: the states it may be found in after a crash at this moment."""

from collections import defaultdict

ABSENT = "gone"


class Marks:
    def __init__(self):
        self.confirmed = defaultdict(lambda: ABSENT)  # id -> the last state that was confirmed
        self.open = defaultdict(set)  # id -> states that were submitted since
        self.history = defaultdict(lambda: {ABSENT})  # id -> every state it ever may have been in
        self.unknown = set()  # ids with an operation of unknown outcome since the last confirmation

    def line(self, line):
        what, id, state = line.split(" ", 2)
        if what == "submit":
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
            assert len(states) == 1, f"{id} is there more than once: {states}"
            allowed = {self.confirmed[id]} | self.open[id] if durable else self.history[id]
            assert states[0] in allowed, f"{id} is {states[0]!r}; allowed: {sorted(allowed)}"
