"""Build a constrained space with another tool: ``tuning_space_peer.py TOOL PROBLEM.json``.

Prints a line of JSON: CPU seconds, growth of the resident size in MB, and the count.
"""

import json
import resource
import sys
import time


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def pyatf(parameters, constraints):
    from pyatf import TP, Set
    from pyatf.search_space import SearchSpace

    names = list(parameters)
    left = list(constraints)
    before, start = peak(), time.process_time()
    made = []
    for i, (name, values) in enumerate(parameters.items()):
        ready = []
        for text in list(left):
            used = [n for n in names if n in compile(text, "constraint", "eval").co_names]
            if all(names.index(n) <= i for n in used):
                left.remove(text)
                ready.append((text, used))
        rule = None
        if ready:
            used = sorted({n for _, u in ready for n in u} | {name}, key=names.index)
            text = " and ".join(f"({t})" for t, _ in ready)
            rule = eval(f"lambda {', '.join(used)}: {text}")
        values = [tuple(v) if isinstance(v, list) else v for v in values]
        made.append(TP(name, Set(*values), rule))
    space = SearchSpace(*made, enable_1d_access=False, verbosity=0)
    return before, start, space.constrained_size


def kernel_tuner(parameters, constraints):
    from kernel_tuner.searchspace import Searchspace

    values = {
        name: [tuple(v) if isinstance(v, list) else v for v in vs]
        for name, vs in parameters.items()
    }
    before, start = peak(), time.process_time()
    space = Searchspace(values, constraints, 1024 * 1024)
    return before, start, space.size


def main():
    with open(sys.argv[2]) as file:
        problem = json.load(file)
    build = {"pyatf": pyatf, "kernel_tuner": kernel_tuner}[sys.argv[1]]
    before, start, count = build(problem["parameters"], problem["constraints"])
    seconds = time.process_time() - start
    print(json.dumps({"seconds": seconds, "memory_mb": (peak() - before) / 1024, "count": count}))


if __name__ == "__main__":
    main()
