"""A fitted model as source: pure Python without NumPy, and a C header.

Both are written from one list of statements. Standardisation is folded into the weights, so a
query costs one logarithm per input and one multiplication per weight.
"""

from __future__ import annotations

import copy
import keyword
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from tilewright.prediction.errors import PredictionError
from tilewright.prediction.export.dialects import C_DIALECT, PYTHON_DIALECT, Dialect
from tilewright.prediction.models.augmented import Augmented
from tilewright.prediction.models.auto import Auto
from tilewright.prediction.models.boosted import Boosted
from tilewright.prediction.models.complexity import Complexity
from tilewright.prediction.models.estimator import LEAST_SECONDS, Estimator
from tilewright.prediction.models.gaussian_process import GaussianProcess
from tilewright.prediction.models.inputs import ModelInputs
from tilewright.prediction.models.intervals import SPREAD, UNSURE
from tilewright.prediction.models.nnc_paper import LRC, NLRC, NN
from tilewright.prediction.models.trees import Trees

_EXPORTED = (Augmented, Auto, Boosted, GaussianProcess, LRC, NLRC, NN)


def export_c(model: Estimator, name: str = "predict_seconds", coverage: float | None = 0.9) -> str:
    """Return a C header with ``double NAME(double feature, ...)`` and ``int NAME_outside(...)``.

    If the model has intervals,
    ``int NAME_interval(double feature, ..., double *low, double *high)``
    gives bounds in seconds that contain the measured time with probability `coverage`, and
    returns whether the model is unsure (`Estimator.unsure`); None leaves it out. The header needs a
    C99 compiler and ``libm``. Raises `PredictionError` for a model that is not fitted, or a
    ``name`` that is not an identifier.
    """
    body, arguments = _source(model, C_DIALECT, name)
    guard = f"{name.upper()}_H"
    parameters = ", ".join(f"double {a}" for a in arguments)
    ranges = " || ".join(
        f"{a} < {low!r} || {a} > {high!r}"
        for a, (low, high) in zip(arguments, model.ranges_.T.tolist(), strict=True)
    )
    return "\n".join(
        [
            f"/* {_title(model)}",
            *(f" *   {line}" for line in _features(model)),
            " */",
            f"#ifndef {guard}",
            f"#define {guard}",
            "#include <math.h>",
            "",
            *(
                line
                for member, part in _members(model, name)
                for line in _c_function(member, _source(part, C_DIALECT, name)[0], arguments)
            ),
            "/* Seconds. */",
            *_c_function(name, body, arguments),
            "",
            "/* Whether the query lies outside the training range. */",
            f"static inline int {name}_outside({parameters}) {{",
            f"    return {ranges};",
            "}",
            *([] if coverage is None else _c_interval(model, name, arguments, coverage)),
            f"#endif /* {guard} */",
            "",
        ]
    )


def packed_c(model: Augmented, name: str, table: str) -> tuple[str, list[float]]:
    """Return a C function that calls `SURFACE_C`, and its numbers, which it reads from `table`.

    Between calls of other work, numbers in one table are back in the cache sooner than the
    instructions of `export_c` that hold them.
    """
    numbers = np.concatenate([part.ravel() for part in model.folded()]).tolist()
    if not all(map(math.isfinite, numbers)):
        raise PredictionError("the model holds a number that is not finite; fit it again")
    body, arguments = _Body(C_DIALECT), _arguments(model)
    columns = _with_expressions(model, body, arguments)
    values = _inputs(model.inputs_, body, columns)
    # An array of no elements is no C.
    body.lines.append(f"const double u_[] = {{{', '.join(values) or '0.0'}}};")
    shape = model.shape_
    body.result = f"tilewright_surface({table}, u_, {shape.inputs}, {shape.terms}, {shape.hidden})"
    return "\n".join(_c_function(name, body, arguments)), numbers


def _c_function(name: str, body: _Body, arguments: Sequence[str]) -> list[str]:
    parameters = ", ".join(f"double {a}" for a in arguments)
    return [
        f"static inline double {name}({parameters}) {{",
        # Inside the function, so that several models fit into one program.
        *(f"    static const {line};" for line in body.tables),
        *(f"    (void){unused};" for unused in _unused(arguments, body)),
        *(f"    {line}" for line in body.lines),
        f"    return {body.result};",
        "}",
    ]


def _c_interval(
    model: Estimator, name: str, arguments: Sequence[str], coverage: float
) -> list[str]:
    """Return the function of intervals (`Estimator.predict_interval`); nothing without them."""
    known = model.calibration_
    if known is None:
        return []
    if not 0 < coverage < 1:
        raise PredictionError(f"coverage is {coverage}; give a number between 0 and 1")
    asked = ", ".join(arguments)
    lines: list[str] = [""]
    spreads = []
    for weight, function, source, middle in _apart(model, name):
        if source is not None:
            lines += _c_function(function, _source(source, C_DIALECT, name)[0], arguments)
        reference = "own_" if middle is None else f"{middle}({asked})"
        spreads.append(f"    far_ = log({function}({asked}) / {reference});")
        spreads.append(f"    spread_ += far_ == far_ ? {weight!r} * far_ * far_ : INFINITY;")
    low, high = known.quantiles(coverage)
    floor = float(model.target_range_[0]) * LEAST_SECONDS
    parameters = ", ".join(f"double {a}" for a in arguments)
    return [
        *lines,
        f"/* Bounds in seconds that hold the measured time with the probability {coverage:g};",
        " * whether the model is unsure there. */",
        f"static inline int {name}_interval({parameters}, double *low_, double *high_) {{",
        f"    static const {C_DIALECT.table('double', 'knots_', known.knots.tolist())};",
        f"    static const {C_DIALECT.table('double', 'scales_', known.scale.tolist())};",
        f"    const double own_ = {name}({asked});",
        f"    const double seconds_ = own_ < {floor!r} ? {floor!r} : own_, log_ = log(seconds_);",
        f"    double local_ = scales_[{len(known.knots) - 1}], spread_ = 0.0, wide_;",
        f"    for (int i_ = {len(known.knots) - 2}; i_ >= 0; --i_)",
        "        if (log_ < knots_[i_ + 1])",
        "            local_ = log_ <= knots_[i_] ? scales_[i_] : scales_[i_] +",
        "                (scales_[i_ + 1] - scales_[i_]) *",
        "                (log_ - knots_[i_]) / (knots_[i_ + 1] - knots_[i_]);",
        *(["    double far_;", *spreads] if spreads else []),
        f"    spread_ = {SPREAD!r} * sqrt(spread_);",
        "    wide_ = sqrt(local_ * local_ + spread_ * spread_);",
        f"    *low_ = seconds_ * exp({low!r} * wide_);",
        f"    *high_ = seconds_ * exp({high!r} * wide_);",
        f"    return spread_ > {UNSURE!r} * local_;",
        "}",
    ]


def _members(model: Estimator, name: str) -> list[tuple[str, Estimator]]:
    """Return the functions of the models that `Auto` weighs, and these; none of other kinds."""
    if not isinstance(model, Auto) or len(model.models_) == 1:
        return []
    return [(f"{name}_member{i}", member) for i, member in enumerate(model.models_)]


def _apart(
    model: Estimator, name: str
) -> Iterator[tuple[float, str, Augmented | None, str | None]]:
    """Yield the models whose distance in log time widens intervals (`Estimator._spread`).

    Each has a weight of the squared distance, the function's name, the model of that function (None
    if it exists already), and the function of the centre, None for the whole model.
    """
    members = _members(model, name)
    models = model.models_ if isinstance(model, Auto) else (model,)
    weights = model.weights_.tolist() if isinstance(model, Auto) else [1.0]
    for i, (member, weight) in enumerate(zip(models, weights, strict=True)):
        middle = members[i][0] if members else None
        if middle is not None:
            yield weight, middle, None, None
        if isinstance(member, Augmented):
            for j, theta in enumerate(member.committee_):
                fold = copy.copy(member)
                fold.theta_ = theta
                yield weight**2 / len(member.committee_), f"{name}_fold{j}", fold, middle


def export_python(model: Estimator, name: str = "predict_seconds") -> str:
    """Return a Python module, which imports ``math`` only, with ``NAME(feature, ...)`` in seconds.

    ``NAME_outside(...)`` says whether a query lies outside the training range. Raises as
    `export_c` does.
    """
    body, arguments = _source(model, PYTHON_DIALECT, name)
    parameters = ", ".join(arguments)
    # Members are of different kinds, whose tables have different names.
    functions = {
        member: _source(part, PYTHON_DIALECT, name)[0] for member, part in _members(model, name)
    }
    functions[name] = body
    tables = [line for part in functions.values() for line in part.tables]
    ranges = " and ".join(
        f"{low!r} <= {a} <= {high!r}"
        for a, (low, high) in zip(arguments, model.ranges_.T.tolist(), strict=True)
    )
    return "\n".join(
        [
            f'"""{_title(model)}',
            "",
            *_features(model),
            '"""',
            "",
            "from math import ceil, exp, fabs, floor, inf, log, log2, nan, pow, sqrt, tanh",
            *(["from struct import pack, unpack"] if tables else []),
            "",
            *tables,
            "",
            *(
                line
                for n, part in functions.items()
                for line in _python_function(n, part, parameters)
            ),
            f"def {name}_outside({parameters}):",
            '    """Whether the query lies outside the training range."""',
            f"    return not ({ranges})",
            "",
        ]
    )


def _python_function(name: str, body: _Body, parameters: str) -> list[str]:
    return [
        f"def {name}({parameters}):",
        '    """Seconds."""',
        "    try:",
        *(f"        {line}" for line in body.lines),
        f"        return {body.result}",
        "    except OverflowError:",
        "        return inf",
        "    except (ValueError, ZeroDivisionError, TypeError):  # no number, as in C",
        "        return nan",
        "",
        "",
    ]


def compile_single(model: Estimator) -> Callable[..., float]:
    """Return the model as a function of plain floats: seconds for one query, in microseconds.

    It runs the source of `export_python`, which contains only the model's numbers and names that
    were checked to be identifiers.
    """
    scope: dict[str, Any] = {}
    exec(compile(export_python(model), "<tilewright model>", "exec"), scope)
    function: Callable[..., float] = scope["predict_seconds"]
    return function


class _Body:
    """Constant tables, statements, and the expression of the result."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.tables: list[str] = []
        self.lines: list[str] = []
        self.result = ""

    def let(self, name: str, expression: str) -> str:
        """Return a statement that names the value of an expression."""
        self.lines.append(self.dialect.let.format(name, expression))
        return name


def _source(model: Estimator, dialect: Dialect, name: str) -> tuple[_Body, list[str]]:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or keyword.iskeyword(name):
        raise PredictionError(f"the function's name {name!r} is not an identifier")
    if not hasattr(model, "ranges_"):
        raise PredictionError(f"this {type(model).__name__} is not fitted; call fit first")
    arguments = _arguments(model)
    body = _Body(dialect)
    if members := _members(model, name):
        assert isinstance(model, Auto)
        asked = ", ".join(arguments)
        body.result = " * ".join(
            f"pow({member}({asked}), {weight!r})"
            for (member, _), weight in zip(members, model.weights_.tolist(), strict=True)
        )
        return body, arguments
    if isinstance(model, Auto):
        (model,) = model.models_
    columns = list(arguments)
    texts: list[str] = []
    if isinstance(model, Augmented):
        body.result = _trend(model, body, arguments)
        return body, arguments
    if model.complexity is not None and type(model) is not NN:
        texts = [model.complexity]
    for i, text in enumerate(texts):
        used = model.inputs_.columns if isinstance(model, Boosted | GaussianProcess) else None
        name = f"work_{i}_"
        printed = _printed(text, model, dialect, arguments)
        columns.append(name if used and len(arguments) not in used else body.let(name, printed))
    if isinstance(model, NN):
        body.result = _network(model, body, columns)
    elif isinstance(model, LRC):
        inputs = columns if len(model.coefficients_) > 1 else columns[-1:]
        body.result = _dot(model.coefficients_, inputs, model.intercept_)
    elif isinstance(model, NLRC):
        body.result = _trees(model.trees_, body, columns)
    elif isinstance(model, Boosted | GaussianProcess):
        body.result = _around_monomial(model, body, columns)
    else:
        raise _not_exported(model)
    return body, arguments


def _not_exported(model: Estimator) -> PredictionError:
    kinds = ", ".join(kind.__name__ for kind in _EXPORTED)
    return PredictionError(
        f"{type(model).__name__} cannot be exported, only {kinds}: fit one of these to runs on the "
        "machine itself, or predict with this one in Python (tilewright.prediction.load)"
    )


def _around_monomial(model: Boosted | GaussianProcess, body: _Body, columns: Sequence[str]) -> str:
    scaled = _standardised(model.inputs_, body, columns)
    monomial = body.let("monomial_", _dot(model.slopes_, scaled, model.constant_))
    if isinstance(model, Boosted):
        return f"exp({monomial} + {_trees(model.trees_, body, scaled)})"
    return f"exp({monomial} + {_process(model, body, scaled)})"


def _printed(text: str, model: Estimator, dialect: Dialect, arguments: Sequence[str]) -> str:
    parsed = Complexity(text, model.names_)
    return parsed.c(arguments) if dialect is C_DIALECT else parsed.python(arguments)


def _trend(model: Augmented, body: _Body, arguments: Sequence[str]) -> str:
    """Our default model's statements, with the expressions that it uses."""
    return _augmented(model, body, _with_expressions(model, body, arguments))


def _with_expressions(model: Augmented, body: _Body, arguments: Sequence[str]) -> list[str]:
    """Return the arguments, and the names of the expressions' values."""
    columns = list(arguments)
    for i, text in enumerate(model.expressions_):
        printed = _printed(text, model, body.dialect, arguments)
        columns.append(body.let(f"extra_{i}_", printed))
    return columns


def _unused(arguments: Sequence[str], body: _Body) -> list[str]:
    """Return arguments that no statement reads, which compilers would warn about."""
    read = set(re.findall(r"[A-Za-z_]\w*", " ".join([*body.lines, body.result])))
    return [argument for argument in arguments if argument not in read]


def _arguments(model: Estimator) -> list[str]:
    """Return identifiers for the features: their own names if these are identifiers."""
    found: list[str] = []
    for name in model.names_:
        plain = re.sub(r"\W", "_", name, flags=re.ASCII)
        # Taken are names of the statements, C's keywords and macros, and functions of math.
        taken = plain in _RESERVED or plain.endswith("_") or re.match(r"[zuvht]\d+$", plain)
        if taken or not re.match(r"[A-Za-z]", plain):
            plain = f"x_{plain}"
        while plain in found:
            plain += "_"
        found.append(plain)
    return found


_RESERVED = set(
    "auto break case char const continue default do double else enum extern float for goto if "
    "inline int long register restrict return short signed sizeof static struct switch typedef "
    "union unsigned void volatile while ceil exp fabs floor inf log log2 sqrt tanh pow fmin fmax "
    "abs min max pack unpack j0 j1 jn y0 y1 yn gamma main sum range zip nan NAN INFINITY HUGE "
    "HUGE_VAL MAXFLOAT DOMAIN SING OVERFLOW UNDERFLOW PLOSS TLOSS M_E M_PI linux unix i386".split()
) | set(keyword.kwlist)


def _title(model: Estimator) -> str:
    return f"Run time in seconds: {type(model).__name__}, {model.parameter_count_} fitted numbers."


def _features(model: Estimator) -> list[str]:
    units, levels = model.units or {}, model.levels or {}
    lines = []
    for name, (low, high) in zip(model.names_, model.ranges_.T.tolist(), strict=True):
        words = ", ".join(f"{i} for {word}" for i, word in enumerate(levels.get(name, ())))
        text = f"{name} ({units.get(name, 'no unit')}{'; ' + words if words else ''})"
        lines.append(re.sub(r"[^\w .,;:%()/^-]", "_", text) + f": {low!r} to {high!r}")
    return lines


def _dot(weights: Iterable[float], values: Sequence[str], constant: float) -> str:
    text = repr(float(constant))
    for weight, value in zip(weights, values, strict=True):
        number = float(weight)
        if not math.isfinite(number):
            raise PredictionError("the model holds a number that is not finite; fit it again")
        if number:
            text += f" {'-' if number < 0 else '+'} {abs(number)!r} * {value}"
    return text


def _inputs(
    inputs: ModelInputs, body: _Body, columns: Sequence[str], prefix: str = "u"
) -> list[str]:
    """Return the statements of the inputs before standardisation."""
    values = []
    for i, (j, function) in enumerate(zip(inputs.columns, inputs.functions, strict=True)):
        if function == "plain":
            values.append(columns[j])
            continue
        bounded = body.dialect.at_least.format(columns[j], repr(float(inputs.floor[i])))
        printed = f"log({bounded})" if function == "log" else f"1.0 / ({bounded})"
        values.append(body.let(f"{prefix}{i}", printed))
    return values


def _augmented(model: Augmented, body: _Body, columns: Sequence[str]) -> str:
    terms, units, outputs = model.folded()
    values = _inputs(model.inputs_, body, columns)
    correction = "0.0"
    for i, row in enumerate(units.tolist()):
        body.let(f"h{i}", body.dialect.tanh.format(_dot(row[:-1], values, row[-1])))
    if len(units):
        correction = _dot(outputs, [f"h{i}" for i in range(len(units))], 0.0)
    monomials = [_dot(row[:-1], values, row[-1]) for row in terms.tolist()]
    if len(monomials) == 1:
        return f"exp({monomials[0]} + ({correction}))"
    body.let("sum_", " + ".join(f"exp({monomial})" for monomial in monomials))
    return f"sum_ * exp({correction})"


def _network(model: NN, body: _Body, columns: Sequence[str]) -> str:
    layer = list(columns)
    weights, biases = list(model.network_.weights), list(model.network_.biases)
    biases[0] = biases[0] - (model.mean_ / model.std_) @ weights[0]
    weights[0] = weights[0] / model.std_[:, None]
    for depth, (weight, bias) in enumerate(zip(weights[:-1], biases[:-1], strict=True)):
        layer = [
            body.let(
                f"h{depth}{i}",
                body.dialect.at_least.format(
                    body.let(f"t{depth}{i}", _dot(weight[:, i], layer, bias[i])), "0.0"
                ),
            )
            for i in range(weight.shape[1])
        ]
    return _dot(weights[-1][:, 0], layer, float(biases[-1][0]))


def _trees(trees: Trees, body: _Body, inputs: Sequence[str]) -> str:
    dialect = body.dialect
    if not trees.depth:
        return repr(float(trees.value[trees.roots].sum() + trees.offset))
    body.tables += [
        dialect.table("long", "roots_", trees.roots.tolist()),
        dialect.table("long", "feature_", trees.feature.tolist()),
        dialect.table("double", "threshold_", trees.threshold.tolist()),
        dialect.table("long", "left_", trees.left.tolist()),
        dialect.table("long", "right_", trees.right.tolist()),
        dialect.table("double", "value_", trees.value.tolist()),
    ]
    body.lines += dialect.walk(inputs, len(trees.roots), trees.depth)
    return f"(total_ + {trees.offset!r})"


def _standardised(inputs: ModelInputs, body: _Body, columns: Sequence[str]) -> list[str]:
    raw = _inputs(inputs, body, columns, "v")
    return [
        body.let(f"z{i}", f"({value} - {mean!r}) / {std!r}")
        for i, (value, mean, std) in enumerate(
            zip(raw, inputs.mean.tolist(), inputs.std.tolist(), strict=True)
        )
    ]


def _process(model: GaussianProcess, body: _Body, scaled: Sequence[str]) -> str:
    dialect = body.dialect
    if not len(scaled):  # no input varies
        return repr(float(model.weights_.sum()))
    body.tables += [
        dialect.table("double", "points_", model.points_.ravel().tolist()),
        dialect.table("double", "weights_", model.weights_.tolist()),
    ]
    lengths = [
        f"{value} / {length!r}"
        for value, length in zip(scaled, model.lengths_.tolist(), strict=True)
    ]
    body.lines += dialect.matern(lengths, len(model.weights_))
    return "total_"
