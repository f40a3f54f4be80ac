"""The differences between Python and C in exported models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Dialect:
    """Templates of statements and expressions.

    Attributes:
        let: a statement naming a value.
        at_least: the larger of a variable and a number.
        tanh: the tanh of an expression.
        table: a constant array from its C type, name and values.
        walk: statements that sum the leaves of trees into ``total_``, from the inputs, the
            number of trees and their depth.
        matern: statements that sum a Gaussian process's kernel into ``total_``, from the inputs
            and the number of points.
    """

    let: str
    at_least: str
    tanh: str
    table: Callable[[str, str, Sequence[float]], str]
    walk: Callable[[Sequence[str], int, int], list[str]]
    matern: Callable[[Sequence[str], int], list[str]]


def _c_table(kind: str, name: str, values: Sequence[float]) -> str:
    return f"{kind} {name}[] = {{{', '.join(map(repr, values))}}}"


def _python_table(kind: str, name: str, values: Sequence[float]) -> str:
    return f"{name} = ({', '.join(map(repr, values))},)"


def _c_walk(inputs: Sequence[str], count: int, depth: int) -> list[str]:
    return [
        f"const float input_[] = {{{', '.join(f'(float)({value})' for value in inputs)}}};",
        "double total_ = 0.0;",
        f"for (int tree_ = 0; tree_ < {count}; ++tree_) {{",
        "    long node_ = roots_[tree_];",
        f"    for (int level_ = 0; level_ < {depth}; ++level_)",
        "        node_ = input_[feature_[node_]] <= threshold_[node_] ? left_[node_]"
        " : right_[node_];",
        "    total_ += value_[node_];",
        "}",
    ]


def _python_walk(inputs: Sequence[str], count: int, depth: int) -> list[str]:
    packed = ", ".join(inputs)
    return [
        # scikit-learn compares in single precision.
        f'input_ = unpack("{len(inputs)}f", pack("{len(inputs)}f", {packed}))',
        "total_ = 0.0",
        "for node_ in roots_:",
        "    below_ = -1",
        "    while below_ != node_:",
        "        if below_ >= 0:",
        "            node_ = below_",
        "        goes_left_ = input_[feature_[node_]] <= threshold_[node_]",
        "        below_ = left_[node_] if goes_left_ else right_[node_]",
        "    total_ += value_[node_]",
    ]


def _c_matern(inputs: Sequence[str], count: int) -> list[str]:
    return [
        f"const double input_[] = {{{', '.join(inputs)}}};",
        "double total_ = 0.0;",
        f"for (int point_ = 0; point_ < {count}; ++point_) {{",
        "    double near_ = 0.0;",
        f"    for (int i_ = 0; i_ < {len(inputs)}; ++i_) {{",
        f"        const double d_ = input_[i_] - points_[point_ * {len(inputs)} + i_];",
        "        near_ += d_ * d_;",
        "    }",
        "    near_ = sqrt(5.0 * near_);",
        "    total_ += weights_[point_] * (1.0 + near_ + near_ * near_ / 3.0) * exp(-near_);",
        "}",
    ]


def _python_matern(inputs: Sequence[str], count: int) -> list[str]:
    size = len(inputs)
    return [
        f"input_ = ({', '.join(inputs)},)",
        "total_ = 0.0",
        f"for point_ in range({count}):",
        f"    place_ = points_[point_ * {size} : point_ * {size} + {size}]",
        "    near_ = sqrt(5.0 * sum((a - b) ** 2 for a, b in zip(input_, place_)))",
        "    total_ += weights_[point_] * (1.0 + near_ + near_ * near_ / 3.0) * exp(-near_)",
    ]


C_DIALECT = Dialect(
    let="const double {} = {};",
    at_least="({0} > {1} ? {0} : {1})",
    # exp is faster than tanh; for large arguments it becomes infinite and the result 1.
    tanh="1.0 - 2.0 / (1.0 + exp(2.0 * ({})))",
    table=_c_table,
    walk=_c_walk,
    matern=_c_matern,
)
PYTHON_DIALECT = Dialect(
    let="{} = {}",
    at_least="{0} if {0} > {1} else {1}",
    tanh="tanh({})",
    table=_python_table,
    walk=_python_walk,
    matern=_python_matern,
)
