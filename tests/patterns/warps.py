"""Cache lines of a kernel's warps by walking every thread's loops: the reference for features."""

from collections import defaultdict

import numpy as np

from tilewright.arith import Boundary, evaluate, substitute
from tilewright.patterns.cache_lines import LINE, WARP
from tilewright.patterns.codegen import code as c


def away_from_borders(index):
    """The index of the common case (section 4.4 of the paper)."""
    return substitute(index, lambda a: away_from_borders(a.x) if isinstance(a, Boundary) else None)


def lines_by_brute_force(kernel, known):
    """The average over all accesses of all warps, by walking every thread's loops."""
    groups, threads = kernel.grid(known), kernel.launch.threads
    lanes = [lane[::-1] for lane in np.ndindex(*threads[::-1])]
    instances: dict = defaultdict(lambda: defaultdict(set))
    executed: dict = defaultdict(int)
    inner: dict = {}

    def walk(block, env, group, lane, warp):
        for s in block:
            if isinstance(s, c.ForLoop):
                d, extent = s.level.dim, evaluate(s.variable.extent, known)
                first, step = {
                    "wrg": (group[d], groups[d]),
                    "lcl": (lane[d], threads[d]),
                    "glb": (group[d] * threads[d] + lane[d], groups[d] * threads[d]),
                }.get(s.level.kind, (0, 1))
                for k, i in enumerate(range(first, extent, step)):
                    walk(s.body, {**env, s.variable.name: i}, group, lane, (*warp, k))
                continue
            touched = [(id(v), v.buffer, v.index) for v in c.loads([s])]
            if isinstance(s, c.Store):
                touched.append((id(s), s.buffer, s.index))
            for key, buffer, index in touched:
                if buffer.memory == "global":
                    index = inner.setdefault(key, away_from_borders(index))
                    line = evaluate(index, env) * buffer.type.size // LINE
                    instances[key][warp].add(line)
                    executed[key] += 1

    for group in np.ndindex(*groups):
        for number, lane in enumerate(lanes):
            walk(kernel.body, dict(known), group, lane, (*group, number // WARP))
    average = {key: np.mean([len(v) for v in found.values()]) for key, found in instances.items()}
    return sum(average[k] * executed[k] for k in average) / sum(executed.values())
