"""Run another tuner on a recorded search space and print what it asked.

Called by ``tuning_quality.py`` with the Python of the peers' environment:

    python tuning_peer.py TOOL PROBLEM.json BUDGET SEED [SEED ...]

PROBLEM.json holds ``parameters`` (name -> values), ``permutations`` (name -> items, of those
whose values are orders, joined by "-"), ``constraints`` (Python expressions) and ``table``
(values joined by "|" -> objective or null where it failed; what is absent breaks a known
constraint). One line of JSON is printed per seed:
``{"seed": s, "asked": [objective or null, ...], "asks": n}``, an entry for every distinct
configuration evaluated, in order, null where it failed. What breaks a known constraint is
refused without an evaluation, as a user's program would; only the number of asks is limited.

Each tool is used as its documentation advises: Optuna gets constraints and failures by
``constraints_func``, OpenTuner permutations as such, Kernel Tuner and pyATF the constraints.
With ``settled`` and ``target`` in the problem, a run ends after this many configurations once
an objective as good as the target has been met. A run that asks nothing but what it has asked
before ends after ``PATIENCE`` seconds of that; the line's ``impatient`` then says so.
"""

import itertools
import json
import math
import os
import random
import sys
import tempfile
import time
import warnings

import numpy as np

BAD = 1e30
# CPU seconds. Optuna's Gaussian process takes longer the more it has asked, repeats included.
PATIENCE = 240.0
ANSWERED = sys.stdout  # tools' own output is redirected
warnings.filterwarnings("ignore")


class Done(BaseException):
    """The budget is used up."""


class Recorder:
    """Answers a tool's questions from the table and counts them."""

    def __init__(self, problem, budget):
        self.problem = problem
        self.names = list(problem["parameters"])
        self.budget = budget
        self.asks = 0
        self.seen = {}
        self.reached = False
        self.impatient = False
        self.newest = time.process_time()
        rules = problem.get("constraints") or ["True"]
        self.rule = compile(" and ".join(f"({rule})" for rule in rules), "constraints", "eval")

    def evaluated(self, key, values):
        if "table" in self.problem:
            return self.problem["table"][key]
        print(json.dumps({"ask": list(values)}), file=ANSWERED, flush=True)
        return json.loads(sys.stdin.readline())

    def __call__(self, values):
        """The objective, None where it failed; raises Done when the budget is used up."""
        key = "|".join(str(v) for v in values)
        self.asks += 1
        if not self.legal(values):
            if self.asks > 10 * self.budget:
                raise Done
            return None
        if key not in self.seen:
            if len(self.seen) >= self.budget:
                raise Done
            if len(self.seen) >= self.problem.get("settled", self.budget) and self.reached:
                raise Done
            found = self.evaluated(key, values)
            self.seen[key] = found
            self.newest = time.process_time()
            self.reached |= found is not None and found <= self.problem.get("target", -BAD)
        elif self.asks > 10 * self.budget:
            raise Done
        elif time.process_time() - self.newest > PATIENCE:
            self.impatient = True
            raise Done
        return self.seen[key]

    def legal(self, values):
        if "table" in self.problem:
            return "|".join(str(v) for v in values) in self.problem["table"]
        return bool(eval(self.rule, dict(zip(self.names, values, strict=True))))


def run_random(ask, seed):
    rng = random.Random(seed)
    if "table" not in ask.problem:
        while True:
            values = [rng.choice(choices) for choices in ask.problem["parameters"].values()]
            if ask.legal(values):
                ask(values)
    keys = list(ask.problem["table"])
    rng.shuffle(keys)
    for key in keys:
        ask(key.split("|"))


def run_optuna(sampler):
    def run(ask, seed):
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        parameters = ask.problem["parameters"]
        # constraints_func is called after the objective: above zero is infeasible
        options = {"seed": seed, "constraints_func": lambda trial: trial.user_attrs["violated"]}
        if sampler == "tpe":
            chosen: optuna.samplers.BaseSampler = optuna.samplers.TPESampler(**options)
        else:
            import torch

            torch.set_num_threads(1)
            chosen = optuna.samplers.GPSampler(**options, deterministic_objective=False)

        def objective(trial):
            values = []
            for name, choices in parameters.items():
                # numbers are given by their rank, so that their order is known
                if all(isinstance(v, int | float) for v in choices):
                    values.append(choices[trial.suggest_int(name, 0, len(choices) - 1)])
                else:
                    values.append(trial.suggest_categorical(name, choices))
            found = ask(values)
            # of the known constraints, and of those that an evaluation shows
            trial.set_user_attr("violated", [float(not ask.legal(values)), float(found is None)])
            # the process models the objective of infeasible trials, too: the worst that is known
            good = [v for v in ask.seen.values() if v is not None]
            return math.log(found if found is not None else max(good, default=1.0))

        study = optuna.create_study(sampler=chosen)
        study.optimize(objective, n_trials=10 * ask.budget)

    return run


def run_kernel_tuner(strategy):
    def run(ask, seed):
        import contextlib
        import io

        import kernel_tuner
        from kernel_tuner import util
        from kernel_tuner.strategies import common

        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        names = ask.names
        cache = {
            "device_name": "recorded",
            "kernel_name": "kernel",
            "problem_size": 1,
            "tune_params_keys": names,
            "tune_params": ask.problem["parameters"],
            "objective": "time",
            "cache": {},
        }
        values_of = {}
        for values in itertools.product(*ask.problem["parameters"].values()):
            key = "|".join(str(v) for v in values)
            if key in ask.problem["table"]:
                time = ask.problem["table"][key]
                entry = dict(zip(names, values, strict=True))
                entry["time"] = "RuntimeFailedConfig" if time is None else time
                if time is None:
                    entry["__error__"] = "RuntimeFailedConfig"
                cache["cache"][",".join(str(v) for v in values)] = entry
                values_of[values] = True
        original = common.CostFunc._normalize_and_validate_config

        def logged(self, x, check_restrictions=True):
            config, legal = original(self, x, check_restrictions)
            try:
                ask(list(config))
            except Done:
                raise util.StopCriterionReached("budget") from None
            return config, legal

        common.CostFunc._normalize_and_validate_config = logged
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "cache.json")
            with open(path, "w") as file:
                json.dump(cache, file)
            try:
                with contextlib.redirect_stdout(io.StringIO()):
                    kernel_tuner.tune_kernel(
                        "kernel",
                        "__global__ void kernel() {}",
                        1,
                        [],
                        ask.problem["parameters"],
                        restrictions=ask.problem["constraints"],
                        strategy=strategy,
                        strategy_options={"max_fevals": ask.budget},
                        simulation_mode=True,
                        cache=path,
                        lang="CUDA",
                        block_size_names=["none_x", "none_y", "none_z"],
                        verbose=False,
                        quiet=True,
                    )
            finally:
                common.CostFunc._normalize_and_validate_config = original

    return run


def run_pyatf(ask, seed):
    import contextlib
    import io

    from pyatf import TP, Set, Tuner
    from pyatf.abort_conditions import Evaluations
    from pyatf.tuning_data import CostFunctionError

    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    names = ask.names
    constraints = list(ask.problem["constraints"])
    parameters = []
    for i, (name, values) in enumerate(ask.problem["parameters"].items()):
        ready = []
        for text in list(constraints):
            used = [n for n in names if n in compile(text, "constraint", "eval").co_names]
            if all(names.index(n) <= i for n in used):
                constraints.remove(text)
                ready.append((text, used))
        rule = None
        if ready:
            used = sorted({n for _, u in ready for n in u} | {name}, key=names.index)
            text = " and ".join(f"({t})" for t, _ in ready)
            # pyATF wants a function whose arguments carry the parameters' names
            rule = eval(f"lambda {', '.join(used)}: {text}")
        parameters.append(TP(name, Set(*values), rule))

    def cost(configuration):
        found = ask([configuration[name] for name in names])
        if found is None:
            raise CostFunctionError("failed")
        return found

    with contextlib.redirect_stdout(io.StringIO()):
        tuner = Tuner().tuning_parameters(*parameters).verbosity(0)
        tuner.tune(cost, Evaluations(10 * ask.budget))


def run_opentuner(ask, seed):
    import contextlib
    import io
    import logging

    import opentuner
    from opentuner.api import TuningRunManager
    from opentuner.measurement.interface import DefaultMeasurementInterface
    from opentuner.resultsdb.models import Result
    from opentuner.search.manipulator import (
        ConfigurationManipulator,
        EnumParameter,
        IntegerParameter,
        PermutationParameter,
    )

    logging.disable(logging.CRITICAL)
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    manipulator = ConfigurationManipulator()
    orders = ask.problem.get("permutations", {})
    for name, values in ask.problem["parameters"].items():
        if name in orders:
            manipulator.add_parameter(PermutationParameter(name, orders[name]))
        elif len(values) > 1 and all(isinstance(v, int | float) for v in values):
            manipulator.add_parameter(IntegerParameter(name, 0, len(values) - 1))
        elif len(values) > 1:
            manipulator.add_parameter(EnumParameter(name, list(range(len(values)))))
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        args = opentuner.default_argparser().parse_args(
            [f"--database=sqlite:///{folder}/db.sqlite", "--no-dups", "--parallelism=1"]
        )
        interface = DefaultMeasurementInterface(
            args=args,
            manipulator=manipulator,
            project_name="p",
            program_name="p",
            program_version="1",
        )
        api = TuningRunManager(interface, args)
        for _ in range(10 * ask.budget):
            desired = api.get_next_desired_result()
            if desired is None:
                ask.asks += 1
                continue
            data = desired.configuration.data
            values = [
                "-".join(map(str, data[name]))
                if name in orders
                else (choices[data[name]] if len(choices) > 1 else choices[0])
                for name, choices in ask.problem["parameters"].items()
            ]
            found = ask(values)
            state = "OK" if found is not None else "ERROR"
            api.report_result(desired, Result(time=BAD if found is None else found, state=state))


TOOLS = {
    "random": run_random,
    "optuna_tpe": run_optuna("tpe"),
    "optuna_gp": run_optuna("gp"),
    "pyatf": run_pyatf,
    "opentuner": run_opentuner,
    **{
        f"kernel_tuner_{name}": run_kernel_tuner(name)
        for name in (
            "genetic_algorithm",
            "simulated_annealing",
            "bayes_opt",
            "hybrid_vndx",
            "adaptive_tabu_greywolf",
        )
    },
}


def main():
    tool, path, budget = sys.argv[1], sys.argv[2], int(sys.argv[3])
    with open(path) as file:
        problem = json.load(file)
    for seed in map(int, sys.argv[4:]):
        ask = Recorder(problem, budget)
        error = None
        try:
            TOOLS[tool](ask, seed)
        except Done:
            pass
        except Exception as problem_error:
            error = f"{type(problem_error).__name__}: {problem_error}"
        line = {"seed": seed, "asked": list(ask.seen.values()), "asks": ask.asks, "error": error}
        line["impatient"] = ask.impatient
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
