"""Kernels of a thread grid run thread by thread in Python: the reference for GPU code.

Threads of a group take turns between barriers. Found out are races in local and global memory,
indices out of range, memory read before it is written, barriers that only some threads reach.
Loads and stores are counted as they happen.
"""

from collections import Counter

import numpy as np
from by_hand import computed

from tilewright.arith import evaluate
from tilewright.patterns.codegen import code as c
from tilewright.patterns.scalar import ScalarOp, parts


class Broken(AssertionError):
    """What a kernel must not do."""


def operators(e):
    """The different operators and functions applied in an expression."""
    inner = set().union(*(operators(part) for part in parts(e)))
    return inner | {e} if isinstance(e, ScalarOp) else inner


class Memory:
    """One buffer, with who read and wrote each element since all threads last waited."""

    def __init__(self, buffer, size, values=None):
        self.buffer = buffer
        self.values = [None] * size if values is None else list(values)
        self.readers, self.writer = {}, {}

    def waited(self):
        self.readers, self.writer = {}, {}

    def check(self, i):
        if not 0 <= i < len(self.values):
            raise Broken(f"{self.buffer.name}[{i}] of {len(self.values)} elements")

    def load(self, i, thread):
        self.check(i)
        if self.writer.get(i, thread) != thread:
            raise Broken(f"race: {self.buffer.name}[{i}] is written by another thread")
        if self.values[i] is None:
            raise Broken(f"{self.buffer.name}[{i}] is read before it is written")
        self.readers.setdefault(i, set()).add(thread)
        return self.values[i]

    def store(self, i, value, thread):
        self.check(i)
        others = self.readers.get(i, set()) | {self.writer.get(i, thread)}
        if others != {thread}:
            raise Broken(f"race: {self.buffer.name}[{i}] is used by another thread")
        self.writer[i] = thread
        self.values[i] = value


class Run:
    """A kernel on given memory; counts loads, stores and barriers by address space."""

    def __init__(self, kernel, known, memory, scalars):
        self.kernel, self.known, self.memory, self.scalars = kernel, known, memory, scalars
        self.counts: Counter = Counter()
        self.grid = kernel.grid(known)

    def everything(self):
        threads = self.kernel.launch.threads
        for group in np.ndindex(*self.grid[::-1]):
            local: dict = {}
            running = [
                self.thread(group[::-1], lane[::-1], local) for lane in np.ndindex(*threads[::-1])
            ]
            while running:
                arrived = [next(t, "end") for t in running]
                if len(set(arrived)) > 1:
                    raise Broken("a barrier that only some threads reach")
                for memory in local.values():
                    memory.waited()
                if arrived[0] == "end":
                    break
        return self.counts

    def thread(self, group, lane, local):
        state = Thread(self, group, lane, local)
        yield from state.block(self.kernel.body)


class Thread:
    def __init__(self, run, group, lane, local):
        self.run, self.group, self.lane, self.local = run, group, lane, local
        self.me = (group, lane)
        self.known = dict(run.known)
        self.names = dict(run.scalars)
        self.private = {}

    def memory(self, buffer):
        if buffer.space == "table":
            return Memory(buffer, 0, [buffer.type.dtype.type(v) for v in buffer.values])
        found = {"local": self.local, "private": self.private}.get(buffer.space, self.run.memory)
        if buffer not in found:
            found[buffer] = Memory(buffer, buffer.size.value)
        return found[buffer]

    def block(self, block):
        for s in block:
            if isinstance(s, c.Barrier):
                self.run.counts["barrier"] += 1
                yield id(s)
            elif isinstance(s, c.ForLoop):
                for i in self.iterations(s):
                    self.known[s.variable.name] = i
                    yield from self.block(s.body)
            elif isinstance(s, c.Allocate):
                if s.buffer.space == "private":
                    self.private.pop(s.buffer, None)
            elif isinstance(s, c.Store):
                if any(evaluate(i, self.known) >= evaluate(m, self.known) for i, m in s.guards):
                    continue
                self.run.counts["store", s.buffer.memory] += 1
                lanes = s.value.lanes if isinstance(s.value, c.Vector) else (s.value,)
                start = evaluate(s.index, self.known)
                if start % len(lanes):
                    raise Broken(f"{s.buffer.name}[{start}] is not aligned to {len(lanes)}")
                made = [s.buffer.type.dtype.type(self.value(v)) for v in lanes]
                for k, value in enumerate(made):
                    self.memory(s.buffer).store(start + k, value, self.me)
            else:
                self.names[s.name] = self.value(s.value)

    def iterations(self, s):
        extent = evaluate(s.variable.extent, self.known)
        kind, d = s.level.kind, s.level.dim
        size = self.run.kernel.launch.threads
        if kind == "wrg":
            return range(self.group[d], extent, self.run.grid[d])
        if kind == "lcl":
            return range(self.lane[d], extent, size[d])
        if kind == "glb":
            start = self.group[d] * size[d] + self.lane[d]
            return range(start, extent, self.run.grid[d] * size[d])
        return range(extent)

    def value(self, v):
        if isinstance(v, c.VectorLoad):
            self.run.counts["load", v.buffer.memory] += 1
            start = evaluate(v.index, self.known)
            if start % v.lanes:
                raise Broken(f"{v.buffer.name}[{start}] is not aligned to {v.lanes} elements")
            memory = self.memory(v.buffer)
            return [memory.load(start + k, self.me) for k in range(v.lanes)]
        if isinstance(v, c.Lane):
            return self.names[v.name][v.number]
        if isinstance(v, c.BufferLoad):
            self.run.counts["load", v.buffer.memory] += 1
            return self.memory(v.buffer).load(evaluate(v.index, self.known), self.me)
        if isinstance(v, c.Name):
            return self.names[v.name]
        if isinstance(v, c.Number):
            return v.type.dtype.type(v.value)
        if isinstance(v, c.IndexValue):
            return np.int32(evaluate(v.index, self.known))
        if isinstance(v, c.FunctionCall):
            self.run.counts["arithmetic"] += len(operators(v.function.body))
            result = computed(v.function.body, [self.value(a) for a in v.args])
            return v.type.dtype.type(result)
        inside = 0 <= evaluate(v.index, self.known) < evaluate(v.length, self.known)
        return self.value(v.value) if inside else self.value(v.other)


def run_program(code, kernels, inputs, known):
    """All kernels of a program: results by output buffer, and counts for each kernel."""
    memory, scalars = {}, {}
    for item in code.inputs:
        array = inputs[item.name]
        if isinstance(item, c.Name):
            scalars[item.name] = array[()]
        else:
            memory[item] = Memory(item, array.size, array.reshape(-1))
    made = {s.buffer for s in code.body if isinstance(s, c.Allocate)} | set(code.outputs)
    for buffer in made:
        memory[buffer] = Memory(buffer, evaluate(buffer.size, known))
    counts = []
    for kernel in kernels:
        for m in memory.values():
            m.waited()
        counts.append(Run(kernel, known, memory, scalars).everything())
    return {b: memory[b].values for b in code.outputs}, counts
