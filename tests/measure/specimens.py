"""Candidates that behave and misbehave, built inside workers by the tests."""

import ctypes
import os
import subprocess
import sys
import time

import numpy as np

from tilewright.measure import VerifyResult


class Sleep:
    """Takes the payload's seconds; notes that it was built in the file of that name."""

    def __init__(self, payload):
        self.seconds = payload if isinstance(payload, int | float) else 0.001

    def run(self):
        time.sleep(self.seconds)

    def verify(self):
        return VerifyResult(True, max_error=0.25)

    def details(self):
        return {"pid": os.getpid(), "tmp": os.environ["TMPDIR"], "env": os.environ.get("SPECIMEN")}


class Overlap(Sleep):
    """Burns CPU while building and while running, and logs when it did what."""

    def __init__(self, payload):
        super().__init__(0.01)
        self.log = payload
        self.busy(0.3, "build")

    def busy(self, seconds, what):
        """Logs an entry for every millisecond in which it got on."""
        end = time.thread_time() + seconds
        seen: list = []
        while time.thread_time() < end:
            now = int(time.monotonic() * 1000)
            if not seen or seen[-1] != now:
                seen.append(now)
        with open(self.log, "a") as log:
            log.write(f"{what} {os.getpid()} {' '.join(map(str, seen))}\n")

    def run(self):
        self.busy(0.05, "run")

    def verify(self):
        return VerifyResult(True)


class Segfault(Sleep):
    def verify(self):
        ctypes.string_at(0)


class Abort(Sleep):
    def run(self):
        os.write(2, b"terminate called after throwing an instance of 'Error'\n")
        os.abort()


class BadAlloc(Sleep):
    def run(self):
        os.write(2, b"terminate called after throwing 'std::bad_alloc'\n")
        os.abort()


class Spin(Sleep):
    def verify(self):
        while True:
            pass


class SpinInBuild(Sleep):
    def __init__(self, payload):
        while True:
            pass


class HangInBuild(Sleep):
    def __init__(self, payload):
        time.sleep(900)


class SpinWhileTimed(Sleep):
    calls = 0

    def run(self):
        self.calls += 1
        while self.calls > 3:
            pass


class Allocate(Sleep):
    def run(self):
        hoard = []
        while True:
            hoard.append(np.ones(1 << 20))


class AllocateInChild(Sleep):
    def run(self):
        code = "hoard = []\nwhile True: hoard.append(bytearray(b'x') * (1 << 23))"
        subprocess.run([sys.executable, "-c", code], check=True)


class Print(Sleep):
    def run(self):
        line = b"x" * 4096
        while True:
            os.write(1, line)


class PrintALot(Sleep):
    def verify(self):
        os.write(1, b"first")
        for _ in range(20_000):
            os.write(1, b"x" * 1024)
        os.write(2, b"last")
        return VerifyResult(True)


class Fork(Sleep):
    """Leaves children that have a session of their own, then hangs; logs their ids."""

    def __init__(self, payload):
        super().__init__(0.001)
        self.log = payload

    def run(self):
        self.leave_children()
        while True:
            time.sleep(0.1)

    def leave_children(self):
        open(self.log, "a").close()
        already = self.logged()
        for _ in range(3):
            if os.fork() == 0:
                os.setsid()
                if os.fork() == 0:
                    with open(self.log, "a") as log:
                        log.write(f"{os.getpid()}\n")
                    time.sleep(1000)
                os._exit(0)
        while self.logged() < already + 3:
            time.sleep(0.01)

    def logged(self):
        with open(self.log) as log:
            return len(log.readlines())


class ForkAndReturn(Fork):
    def run(self):
        pass

    def verify(self):
        self.leave_children()
        return VerifyResult(True)


class Raise(Sleep):
    def run(self):
        raise RuntimeError("the kernel did not launch")


class RaiseMemory(Sleep):
    def run(self):
        raise RuntimeError("CUDA_ERROR_OUT_OF_MEMORY: cuMemAlloc failed")


class BuildFails(Sleep):
    def __init__(self, payload):
        raise ValueError("no such loop")


class Wrong(Sleep):
    def verify(self):
        return VerifyResult(False, "3 of 10 values differ", 7.5)


class Exit(Sleep):
    def run(self):
        os._exit(3)


class SystemExits(Sleep):
    def run(self):
        sys.exit("enough")


class KillServer(Sleep):
    def run(self):
        os.kill(os.getppid(), 9)
        time.sleep(5)


class NoVerify:
    def __init__(self, payload):
        self.payload = payload

    def run(self):
        pass


class OddDetails(Sleep):
    def details(self):
        return {"array": np.float32(2.5), "what": {1, 2} and "set"}


class BadDetails(Sleep):
    def details(self):
        raise RuntimeError("nothing to tell")


class CrashingDetails(Sleep):
    def details(self):
        ctypes.string_at(0)


class Recheck(Sleep):
    """Wrong at first; right at second sight if the payload says so."""

    def __init__(self, payload):
        super().__init__(0.001)
        self.really = payload

    def verify(self):
        return VerifyResult(False, "looks wrong", 2.0)

    def recheck(self):
        time.sleep(2.2)  # longer than a verification may take
        return VerifyResult(self.really, "looked again", 2.0)
