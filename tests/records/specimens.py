"""Candidates for the tests of recording."""

import os


class Logged:
    """Notes in a file that it was built."""

    def __init__(self, payload):
        with open(payload["log"], "a") as log:
            log.write(f"{payload['number']}\n")
        self.number = payload["number"]

    def run(self):
        if self.number % 7 == 5:
            os.abort()


class Hungry:
    """Holds the given number of megabytes."""

    def __init__(self, payload):
        self.memory = bytearray(b"x") * (payload << 20)

    def run(self):
        pass
