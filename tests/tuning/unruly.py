"""Objectives that misbehave, for the tests of `Isolated`."""

import os
import subprocess
import time


def objective(c):
    x = c["x"]
    if x == 0:
        os._exit(9)
    if x == 1:
        time.sleep(900)
    if x == 2:
        hoard = []
        while True:
            hoard.append(bytearray(32 << 20))
    if x == 3:
        for _ in range(2000):
            os.write(1, b"x" * 65536)
        return 3.0
    if x == 4:
        subprocess.Popen(["sleep", "60"])
        return 4.0
    if x == 5:
        return float("nan")
    if x == 6:
        return "fast"
    if x == 7:
        raise ValueError("no such tile")
    return float(x)
