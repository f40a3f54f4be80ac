"""Print schedules as readable Python and C++ code that users can keep and edit.

The printed function takes a fresh pipeline. It finds a Func by the name that the user gave it, and
distinguishes several Funcs of one name by age (Halide calls all unnamed Funcs ``f``). It cannot use
Halide's order of Funcs, which depends on automatic names that differ between builds.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from tilewright.halide.emit.checks import cpp_check, cpp_string, python_check
from tilewright.halide.emit.directives import (
    Argument,
    Condition,
    Directive,
    EnumRef,
    FuncRef,
    LoopRef,
    Outermost,
    Pairs,
    StageRef,
    directives,
)
from tilewright.halide.emit.finders import CPP_FINDER, CPP_KNOWN, PYTHON_FINDER, PYTHON_KNOWN
from tilewright.halide.emit.identifiers import RESERVED, name_keys, shown
from tilewright.halide.emit.languages import CPP, PYTHON, Language, cloning, factoring
from tilewright.halide.ir.algorithm import Algorithm
from tilewright.halide.ir.clones import (
    CloneCall,
    clone_calls,
    factor_calls,
    originals,
    with_clones,
)
from tilewright.halide.ir.loops import dimension_of, origin
from tilewright.halide.ir.names import LoopNames, distinct, loop_names, readable
from tilewright.halide.ir.schedule import (
    CallCondition,
    FuncSchedule,
    KnownValue,
    Level,
    OutputExtent,
    OutputValue,
    Schedule,
)
from tilewright.halide.ir.variants import conditions_text
from tilewright.halide.legality.sizes import Requirement


def to_python(
    schedule: Schedule,
    algorithm: Algorithm,
    name: str = "schedule",
    requirements: Sequence[Requirement] = (),
    checks: bool = False,
) -> str:
    """Return a Python module with a function `name` that schedules a fresh ``halide.Pipeline``.

    Args:
        schedule: The schedule.
        algorithm: The algorithm, with or without the schedule's clones.
        name: The function's name.
        requirements: Requirements on sizes, which the docstring lists.
        checks: Whether to add a function ``NAME_refuses`` that returns why outputs do not meet the
            requirements (see `emit.checks`).
    """
    text = _Printer(schedule, algorithm, PYTHON, requirements).python(name)
    return f"{text}\n\n{python_check(name, requirements)}" if checks else text


def to_cpp(
    schedule: Schedule,
    algorithm: Algorithm,
    name: str = "schedule",
    requirements: Sequence[Requirement] = (),
    checks: bool = False,
) -> str:
    """Return a C++ header with a function `name` that schedules a fresh ``Halide::Pipeline``.

    The arguments are those of `to_python`.
    """
    text = _Printer(schedule, algorithm, CPP, requirements).cpp(name)
    return f"{text}{cpp_check(name, requirements)}" if checks else text


@dataclass
class _Section:
    """The directives of one stage of one Func, or of one of its specialisations.

    Attributes:
        func: The Func's position.
        stage: Its stage.
        directives: The directives to print.
        branch: The specialisation (counted from 1) that they are for; 0 for the stage itself.
        makes: The specialisation that is made after these directives; 0 for none.
        wanted: The condition of the specialisation `makes`.
        locals: The identifiers of the definition's loops, by canonical name.
        condition: The condition of a final specialisation that has no separate directives.
    """

    func: int
    stage: int
    directives: list[Directive]
    branch: int = 0
    makes: int = 0
    wanted: Condition | None = None
    locals: dict[str, str] = field(default_factory=dict)
    condition: Condition | None = None


class _Printer:
    def __init__(
        self,
        schedule: Schedule,
        algorithm: Algorithm,
        language: Language,
        requirements: Sequence[Requirement] = (),
    ) -> None:
        self.schedule = schedule
        self.requirements = requirements
        self.clones = clone_calls(algorithm, schedule.clones)
        self.factored = factor_calls(algorithm, schedule.clones)
        self.algorithm = algorithm = with_clones(algorithm, schedule.clones)
        self.given = originals(algorithm)
        self.language = language
        self.names: LoopNames = loop_names(schedule, algorithm)
        keys = name_keys([algorithm.funcs[place].name for place in self.given.values()])
        self.keys = dict(zip(self.given.values(), keys, strict=True))
        self.param_keys = name_keys([parameter.name for parameter in algorithm.parameters])
        self.sections: list[_Section] = []
        for directive in directives(schedule, algorithm):
            last = self.sections[-1] if self.sections else None
            place = directive.func, directive.stage, directive.branch
            if last is None or (last.func, last.stage, last.branch) != place or last.makes:
                last = _Section(directive.func, directive.stage, [], directive.branch)
                self.sections.append(last)
            if directive.makes:
                last.makes = directive.makes
                (last.wanted,) = (a for a in directive.args if isinstance(a, Condition))
            elif directive.method == "specialize":
                (last.condition,) = (a for a in directive.args if isinstance(a, Condition))
            else:
                last.directives.append(directive)
        self._choose_identifiers()

    def _choose_identifiers(self) -> None:
        """Choose identifiers for Funcs, for introduced loops, and for the loops of definitions."""
        taken = set(RESERVED)

        def choose(wish: str) -> str:
            wish = wish.replace("__", "_")
            name = distinct(f"{wish}_" if wish in RESERVED else wish, taken)
            taken.add(name)
            return name

        used_funcs = self._used_funcs()
        wishes = {i: key[0] for i, key in self.keys.items()}
        self.func_ids = {
            i: choose(readable(wishes.get(i, self.algorithm.funcs[i].name)))
            for i in sorted(used_funcs)
        }
        self.loop_ids: dict[tuple[str, bool], str] = {}
        for section in self.sections:
            for ref in _loop_refs(section):
                if (ref.func, ref.name) in self.names.introduced:
                    key = (self.names(ref.func, ref.stage, ref.name), ref.reduction)
                    if key not in self.loop_ids:
                        self.loop_ids[key] = choose(key[0])
        # Identifiers of the specialisations, by Func, stage and number.
        self.branch_ids = {
            (section.func, section.stage, section.makes): choose(
                f"{self.func_ids[section.func]}_large"
            )
            for section in self.sections
            if section.makes
        }
        self.conditions = {
            (section.func, section.stage, section.makes): section.wanted
            for section in self.sections
            if section.wanted
        }
        self.taken = taken

    def _used_funcs(self) -> set[int]:
        """Return the positions of the Funcs that the code mentions."""
        used_funcs = {section.func for section in self.sections}
        for section in self.sections:
            for condition in (section.wanted, section.condition):
                known = condition.known if condition else ()
                used_funcs.update(c.func for c in known if not isinstance(c, KnownValue))
        for section in self.sections:
            for directive in section.directives:
                refs = (arg for arg in directive.args if isinstance(arg, FuncRef | StageRef))
                used_funcs.update(ref.func for ref in refs)
        for call in self.clones:
            used_funcs.update((call.func, *call.readers, call.result))
        used_funcs.update(place for each in self.factored for place in (each.func, each.result))
        return used_funcs

    def _locals(self, section: _Section) -> dict[str, str]:
        """Return identifiers for the loops of the definition that a section mentions."""
        taken = set(self.taken)
        result: dict[str, str] = {}
        for ref in _loop_refs(section):
            own = (ref.func, ref.stage) == (section.func, section.stage)
            if own and (ref.func, ref.name) not in self.names.introduced:
                if ref.name in result:
                    continue
                wish = readable(self.names(ref.func, ref.stage, ref.name))
                result[ref.name] = distinct(f"{wish}_" if wish in RESERVED else wish, taken)
                taken.add(result[ref.name])
        return dict(sorted(result.items(), key=lambda item: _place(item[0])))

    def _origin(self, func: int, stage: int, loop: str) -> str:
        """Return the expression that gets a loop of the definition from the Func."""
        ident = self.func_ids[func]
        kind, index = _place(loop)
        if kind == "v":
            return f"{ident}.args()[{index}]"
        return f"{ident}.rvars({stage - 1})[{index}]"

    def _argument(self, arg: Argument, section: _Section) -> str:
        if isinstance(arg, FuncRef):
            return self.func_ids[arg.func]
        if isinstance(arg, EnumRef):
            return self.language.constant.format(arg.enumeration, arg.value)
        if isinstance(arg, Outermost):
            return self.language.outermost
        if isinstance(arg, LoopRef):
            if (arg.func, arg.name) in self.names.introduced:
                name = self.names(arg.func, arg.stage, arg.name)
                return self.loop_ids[name, arg.reduction]
            if (arg.func, arg.stage) == (section.func, section.stage):
                return section.locals[arg.name]
            return self._origin(arg.func, arg.stage, arg.name)
        if isinstance(arg, StageRef):
            return self._stage(arg.func, arg.stage)
        if isinstance(arg, Pairs):
            pairs = (tuple(self._argument(a, section) for a in pair) for pair in arg.items)
            listed = ", ".join(self.language.pair.format(*pair) for pair in pairs)
            return self.language.several.format(listed)
        if isinstance(arg, bool):
            return self.language.truth[arg]
        return str(arg)

    def _calls(self, section: _Section) -> list[str]:
        calls = []
        for directive in section.directives:
            # Omit an empty list: it is the default, and ambiguous in C++.
            args = [arg for arg in directive.args if arg != Pairs(())]
            listed = ", ".join(self._argument(arg, section) for arg in args)
            method = self.language.methods.get(directive.method, directive.method)
            calls.append(f".{method}({listed})")
        return calls

    def _factored(self) -> list[str]:
        """Return the statements that split reductions."""
        return [factoring(call, self.func_ids, self.language) for call in self.factored]

    def _clone(self, call: CloneCall) -> str:
        """Return the expression that makes a clone."""
        return cloning(call, self.func_ids, self.language)

    def _receiver(self, section: _Section) -> str:
        if section.branch:
            return self.branch_ids[section.func, section.stage, section.branch]
        return self._stage(section.func, section.stage)

    def _stage(self, func: int, stage: int) -> str:
        ident = self.func_ids[func]
        return ident if stage == 0 else f"{ident}.update({stage - 1})"

    def _comment(self, section: _Section) -> str:
        name = shown(self.algorithm.funcs[section.func].name)
        if section.branch:
            return f"{name}, for {self._outputs(section)}"
        if (section.func, section.stage, 1) in self.branch_ids and not section.makes:
            return f"{name}, for all others"
        if section.stage > 0:
            return f"{name}, update {section.stage - 1}"
        entry = next(e for e in self.schedule.funcs if e.func == section.func)
        return f"{name}: {self._placement(entry)}"

    def _outputs(self, section: _Section) -> str:
        """Return in words the outputs that a specialisation is for."""
        if not self.schedule.variants:
            return "large outputs"
        condition = self.conditions[section.func, section.stage, section.branch]
        return shown(conditions_text(condition.known, self.algorithm))

    def _placement(self, entry: FuncSchedule) -> str:
        text = f"computed {self._level(entry.compute)}"
        if entry.store != entry.compute:
            text += f", stored {self._level(entry.store)}"
        if entry.hoist is not None:
            text += f", allocated {self._level(entry.hoist)}"
        return text

    def _level(self, level: Level) -> str:
        if level.kind != "at":
            return f"at {level.kind}"
        loop = readable(self.names(level.func, level.stage, level.loop))
        return f"at loop {loop} of {shown(self.algorithm.funcs[level.func].name)}"

    def _about(self) -> list[str]:
        inlined = [f.func for f in self.schedule.funcs if f.compute.kind == "inline"]
        lines = [
            f"Schedule for target {shown(self.schedule.target)}.",
            f"Algorithm {shown(self.schedule.algorithm)}.",
        ]
        if inlined:
            names = ", ".join(self.algorithm.funcs[i].name for i in inlined)
            lines.append(f"Inlined: {shown(names)}.")
        if self.specialised:
            names = ", ".join(self.algorithm.parameters[i].name for i in self.specialised)
            lines.append(f"Specialised on the expected sizes or values of {shown(names)}.")
        lines += [f"Requires: {shown(str(need))}" for need in self.requirements]
        return lines

    @property
    def specialised(self) -> list[int]:
        """Positions of the parameters on which the schedule specialises."""
        conditions = [
            condition
            for section in self.sections
            for condition in (section.condition, section.wanted)
            if condition
        ]
        return sorted(
            {
                known.parameter
                for c in conditions
                for known in c.known
                if isinstance(known, KnownValue)
            }
        )

    def _python_condition(self, condition: Condition) -> str:
        def one(known: CallCondition) -> str:
            if not isinstance(known, KnownValue):
                return " & ".join(f"({term})" for term in self._of_output(known))
            base, rank = self.param_keys[known.parameter]
            param = f"param[{json.dumps(base)}][{rank}]"
            least = ", least=True" if known.least else ", multiple=True" if known.multiple else ""
            return f'known({param}, "{known.field}", {known.dimension}, {known.value}{least})'

        return " & ".join(one(known) for known in condition.known)

    def _of_output(self, known: OutputExtent | OutputValue) -> list[str]:
        """Return the terms of a condition on an output, valid in Python and C++."""
        of = f"{self.func_ids[known.func]}.output_buffers()[0].dim({known.dimension})"
        if isinstance(known, OutputValue):
            return [f"{of}.{known.field}() == {known.value}"]
        terms = [f"{of}.extent() >= {known.minimum}"]
        terms += [f"{of}.extent() % {known.multiple} == 0"] * (known.multiple > 1)
        return terms + [f"{of}.min() % {known.start} == 0"] * (known.start > 1)

    def _cpp_condition(self, condition: Condition) -> str:
        def one(known: CallCondition) -> str:
            if not isinstance(known, KnownValue):
                return " && ".join(self._of_output(known))
            base, rank = self.param_keys[known.parameter]
            suffix = "" if known.field == "value" else f".{known.field}.{known.dimension}"
            param = f"param.at({cpp_string(base)}).at({rank})"
            least = ", true" if known.least else ", false, true" if known.multiple else ""
            return f"known({param}, {cpp_string(suffix)}, {known.value}{least})"

        return " && ".join(one(known) for known in condition.known)

    def python(self, name: str) -> str:
        lines = ["import re", "", "import halide as hl", "", ""]
        lines += [f"def {name}(pipeline):"]
        about = self._about()
        lines += [f'    """{about[0]}', "", *(f"    {line}" for line in about[1:]), '    """']
        lines += [f"    func = find_funcs(pipeline, {len(self.keys)})"]
        if self.specialised:
            lines.append("    param = find_params(pipeline)")
        for index, ident in self.func_ids.items():
            if index in self.keys:
                base, rank = self.keys[index]
                lines.append(f"    {ident} = func[{json.dumps(base)}][{rank}]")
        lines += self._factored()
        for call in self.clones:
            lines.append(f"    {self.func_ids[call.result]} = {self._clone(call)}")
        for (loop, reduction), ident in self.loop_ids.items():
            kind = "RVar" if reduction else "Var"
            lines.append(f'    {ident} = hl.{kind}("{loop}")')
        for section in self.sections:
            section.locals = self._locals(section)
            lines += ["", f"    # {self._comment(section)}"]
            for loop, ident in section.locals.items():
                lines.append(f"    {ident} = {self._origin(section.func, section.stage, loop)}")
            calls = self._calls(section)
            if not calls:
                pass
            elif len(calls) == 1:
                lines.append(f"    {self._receiver(section)}{calls[0]}")
            else:
                lines += ["    (", f"        {self._receiver(section)}{calls[0]}"]
                lines += [f"        {call}" for call in calls[1:]]
                lines += ["    )"]
            if section.condition:
                condition = self._python_condition(section.condition)
                lines += [f"    {self._receiver(section)}.specialize({condition})"]
            if section.wanted:
                condition = self._python_condition(section.wanted)
                ident = self.branch_ids[section.func, section.stage, section.makes]
                lines += [f"    {ident} = {self._receiver(section)}.specialize({condition})"]
        finders = [PYTHON_FINDER, PYTHON_KNOWN] if self.specialised else [PYTHON_FINDER]
        return "\n".join([*lines, "", "", "\n\n".join(finders)])

    def cpp(self, name: str) -> str:
        lines = ["#pragma once", "", '#include "Halide.h"', ""]
        lines += [f"#include <{header}>" for header in ("map", "string", "utility", "vector")]
        lines += ["", CPP_FINDER]
        if self.specialised:
            lines += [CPP_KNOWN]
        lines += [f"// {line}" for line in self._about()]
        lines += [
            f"inline void {name}(Halide::Pipeline &pipeline) {{",
            "    using namespace Halide;",
        ]
        if self.specialised:
            lines += ["    auto param = find_params(pipeline);"]
        lines += [f"    auto func = find_funcs(pipeline, {len(self.keys)});"]
        for index, ident in self.func_ids.items():
            if index in self.keys:
                base, rank = self.keys[index]
                lines.append(f"    Func {ident} = func.at({cpp_string(base)}).at({rank});")
        lines += self._factored()
        for call in self.clones:
            lines.append(f"    Func {self.func_ids[call.result]} = {self._clone(call)};")
        for (loop, reduction), ident in self.loop_ids.items():
            lines.append(f'    {"RVar" if reduction else "Var"} {ident}("{loop}");')
        for section in self.sections:
            section.locals = self._locals(section)
            lines += ["", f"    // {self._comment(section)}", "    {"]
            for loop, ident in section.locals.items():
                kind = "RVar" if dimension_of(loop) is None else "Var"
                origin = self._origin(section.func, section.stage, loop)
                lines.append(f"        {kind} {ident} = {origin};")
            calls = self._calls(section)
            if calls:
                lines.append(f"        {self._receiver(section)}{calls[0]}")
                lines += [f"            {call}" for call in calls[1:]]
                lines[-1] += ";"
            if section.condition:
                condition = self._cpp_condition(section.condition)
                lines.append(f"        {self._receiver(section)}.specialize({condition});")
            lines.append("    }")
            if section.wanted:
                condition = self._cpp_condition(section.wanted)
                ident = self.branch_ids[section.func, section.stage, section.makes]
                made = f"{self._receiver(section)}.specialize({condition})"
                lines.append(f"    Stage {ident} = {made};")
        return "\n".join([*lines, "}", ""])


def _place(loop: str) -> tuple[str, int]:
    """Return the kind (``v`` or ``r``) and the index of a loop of the definition."""
    found = origin(loop)
    assert found is not None
    return found


def _loop_refs(section: _Section) -> list[LoopRef]:
    args: list[Argument] = []
    for directive in section.directives:
        for arg in directive.args:
            args += [loop for loop, _ in arg.items] if isinstance(arg, Pairs) else [arg]
    return [arg for arg in args if isinstance(arg, LoopRef)]
