"""The page of a tuned program: its graph, the best kernel with its derivation, all times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import chain, count
from types import MappingProxyType

import numpy as np

from tilewright.patterns import nodes as n
from tilewright.patterns.check import type_of
from tilewright.patterns.codegen.code import Allocate, Buffer, Code, statements
from tilewright.patterns.codegen.generate import generate
from tilewright.patterns.compiling import grid_code, source
from tilewright.patterns.nodes import text
from tilewright.patterns.printing import definitions
from tilewright.patterns.ranking.evaluation import correlation
from tilewright.patterns.tuning import MeasuredKernel, PatternTuning
from tilewright.report import Dag, GraphNode, NodeKind, units
from tilewright.report.charts import Points, dag_picture, reflowing, scatter_plot
from tilewright.report.pages import (
    Figure,
    Html,
    Section,
    folded,
    html_page,
    html_table,
    join,
    standing_figure,
    tag,
)
from tilewright.report.pages import source as listing
from tilewright.report.table import table

_LABEL = 22  # characters of a node's name in the picture
_UNIT = (
    "A fitted model predicts times relative to the best kernel's; the estimate predicts seconds."
)


def patterns_page(
    tuned: PatternTuning, ranked_by: str, facts: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Return the page as HTML.

    Args:
        tuned: the outcome.
        ranked_by: the model's name.
        facts: how the page was made: values by name.
    """
    best = tuned.best
    sections = [_program(tuned)]
    if best is not None:
        sections += [_derivation(best), _kernel(best, tuned.target)]
    sections.append(_predictions(tuned, ranked_by))
    if best is not None:
        sections.append(_features(tuned, best))
    return html_page(
        "A program of patterns, tuned",
        [*sections, _all(tuned)],
        subtitle=f"{text(tuned.program)[:200]}",
        figures=_figures(tuned),
        facts=facts,
    )


def _figures(tuned: PatternTuning) -> list[Figure]:
    figures = [
        Figure(str(tuned.considered), "kernels ranked without running them"),
        Figure(str(len(tuned.measured)), "measured"),
    ]
    wrong = sum(m.measurement.status == "wrong_answer" for m in tuned.measured)
    figures.append(Figure(str(wrong), "wrong", "bad" if wrong else "good"))
    if tuned.best is None:
        return [*figures, Figure("none", "gave the right result", "bad")]
    figures.append(Figure(units.seconds(tuned.best.seconds), "the fastest"))
    if tuned.standing is not None:
        figures.append(standing_figure(tuned.standing))
    return figures


def _program(tuned: PatternTuning) -> Section:
    picture = dag_picture(program_graph(tuned.program), [], label="The program")
    words = definitions(tuned.program)
    return Section(
        "The program",
        join(picture, folded("As Python", listing(f"{words}\n\n{text(tuned.program)}"))),
        "Inputs are at the top. A box in the middle is a stage; point at it for its full text.",
    )


def program_graph(program: n.Pattern) -> Dag:
    """Return the stages of a program as a graph; adjacent layout stages are merged."""
    drawing = _Drawing()
    last = drawing.stages(program, ())
    drawing.node(f"result {type_of(program)}", "output", last, text(program))
    return Dag(tuple(drawing.nodes), tuple(drawing.edges))


class _Drawing:
    """Nodes and edges under construction; a value is represented by its source nodes' names."""

    def __init__(self) -> None:
        self.nodes: list[GraphNode] = []
        self.edges: list[tuple[str, str]] = []

    def node(self, name: str, kind: NodeKind, given: Sequence[str], detail: str) -> tuple[str, ...]:
        """Add a node under a unique name."""
        taken = {node.name for node in self.nodes}
        name = name if len(name) <= _LABEL else name[: _LABEL - 1] + "…"
        names = chain([name], (f"{name} {i}" for i in count(2)))
        unique = next(each for each in names if each not in taken)
        self.nodes.append(GraphNode(unique, kind, detail=detail))
        self.edges += [(source, unique) for source in dict.fromkeys(given)]
        return (unique,)

    def stages(self, p: n.Pattern, given: tuple[str, ...]) -> tuple[str, ...]:
        """Draw a pipe; return the nodes that its result comes from."""
        layout: list[n.Pattern] = []
        for stage in n.stages(p):
            plain = not isinstance(stage, n.Fork | n.Par | n.Input) and not n.computes(stage)
            if plain and given:
                layout.append(stage)
                continue
            given = self.stage(stage, self.layout(layout, given))
            layout = []
        return self.layout(layout, given)

    def layout(self, stages: list[n.Pattern], given: tuple[str, ...]) -> tuple[str, ...]:
        """Draw stages that only change the layout as one node."""
        if not stages:
            return given
        words = text(n.pipe(*stages))
        return self.node(words, "func", given, words)

    def stage(self, stage: n.Pattern, given: tuple[str, ...]) -> tuple[str, ...]:
        """Draw a stage."""
        if isinstance(stage, n.Fork | n.Par):
            parts = [given] * len(stage.items)
            if isinstance(stage, n.Par) and len(given) == len(stage.items):
                parts = [(one,) for one in given]
            drawn = [self.stages(item, part) for item, part in zip(stage.items, parts, strict=True)]
            return tuple(name for names in drawn for name in names)
        if isinstance(stage, n.Input):
            known = next((v.name for v in self.nodes if v.detail == text(stage)), None)
            if known is not None:
                return (known,)
            detail = text(stage)
            return self.node(f"{stage.name} {stage.type}", "input", (), detail)
        return self.node(text(stage), "func" if given else "input", given, text(stage))


def _derivation(best: MeasuredKernel) -> Section:
    steps = [tag("p", "As it is written:"), listing(text(best.kernel.derivation.start))]
    for rule, program in best.kernel.derivation.steps:
        steps += [tag("p", tag("b", str(rule)), ": ", rule.rewriting, " (", rule.source, ")")]
        steps.append(listing(text(program)))
    return Section("The derivation of the fastest kernel", join(*steps))


def _kernel(best: MeasuredKernel, target: str) -> Section:
    program, launch = best.kernel.derivation.program, best.kernel.launch
    code = generate(program) if target == "c" else grid_code(program, "kernel", launch)[0]
    rows = [(b.name, b.memory, b.type.name, str(b.size), _bytes(b)) for b in _buffers(code)]
    columns = "array | memory | type | >elements | >bytes"
    memory = html_table(table(columns, rows))
    return Section("Its kernel", join(memory, listing(source(program, target, "kernel", launch))))


def _buffers(code: Code) -> list[Buffer]:
    arrays = [item for item in code.inputs if isinstance(item, Buffer)]
    made = [s.buffer for s in statements(code.body) if isinstance(s, Allocate)]
    return [*arrays, *code.outputs, *made]


def _bytes(b: Buffer) -> str:
    return units.size(int(b.size.value) * b.type.size) if b.size.value is not None else "?"


def _right(tuned: PatternTuning) -> list[MeasuredKernel]:
    return [m for m in tuned.measured if m.measurement.ok and m.kernel.features is not None]


def _predictions(tuned: PatternTuning, ranked_by: str) -> Section:
    groups = {False: "timed to the end", True: "cut short: at least this long"}
    kinds = []
    for short, label in groups.items():
        those = [m for m in _right(tuned) if m.lower_bound == short]
        kinds.append(
            Points(
                label,
                [m.kernel.predicted or 0.0 for m in those],
                [m.seconds for m in those],
                [f"{m.number}: {_steps(m)}" for m in those],
            )
        )
    plot = reflowing(
        lambda width: scatter_plot(
            [k for k in kinds if k.x],
            label="Predicted and measured times",
            x_label="predicted",
            y_label="measured",
            log_x=True,
            log_y=True,
            y_text=units.seconds,
            width=width,
        )
    )
    return Section("Predicted and measured", plot, f"Predicted by {ranked_by}. {_UNIT}")


def deciding_features(tuned: PatternTuning) -> list[tuple[str, float, float, float]]:
    """Return features that differ between measured kernels, the most strongly correlated first.

    Returns:
        Per feature: name, value in the fastest kernel, median, and correlation with the logarithm
        of the measured time.
    """
    right = _right(tuned)
    best = tuned.best
    if best is None or best.kernel.features is None or len(right) < 2:
        return []
    times = np.log([m.seconds for m in right])
    found = []
    for name, value in asdict(best.kernel.features).items():
        column = np.array([getattr(m.kernel.features, name) for m in right], dtype=float)
        if np.ptp(column) > 0:
            found.append((name, float(value), float(np.median(column)), correlation(column, times)))
    return sorted(found, key=lambda f: -abs(f[3]))


def _features(tuned: PatternTuning, best: MeasuredKernel) -> Section:
    rows = [
        (name.replace("_", " "), units.digits(value), units.digits(middle), f"{share:+.2f}")
        for name, value, middle, share in deciding_features(tuned)
    ]
    columns = "feature | >fastest | >median | >correlation with the time"
    same = tag("p", "The measured kernels have the same features.")
    content: Html = html_table(table(columns, rows)) if rows else same
    note = "Correlation of the feature with the logarithm of the time over the measured kernels."
    return Section("Features that explain the times", content, note if rows else "")


def _steps(m: MeasuredKernel) -> str:
    return ", ".join(str(rule) for rule, _ in m.kernel.derivation.steps) or "as it is written"


def _all(tuned: PatternTuning) -> Section:
    rows = []
    for m in tuned.measured:
        predicted = "" if m.kernel.predicted is None else units.digits(m.kernel.predicted)
        taken = "final rounds" if m.final else ""
        rows.append((str(m.number), m.time, taken, predicted, _steps(m)))
    found = table(">rank | >time | taken | >predicted | ~steps", rows)
    note = "Rank 0 is the program as it is written. A time after > is of runs that were cut short."
    return Section("Measured kernels", html_table(found), note)
