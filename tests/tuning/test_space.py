import itertools
import json
import math
from collections import Counter
from importlib import resources

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.tuning import (
    Categorical,
    ConfigurationError,
    ConstraintError,
    Integer,
    Ordinal,
    Permutation,
    Real,
    Space,
    SpaceError,
    space_from_dict,
    space_to_dict,
)
from tilewright.tuning.space import feasible


def every(space):
    """All configurations of a small discrete space, found without the feasible set."""
    axes = []
    for p in space.parameters:
        if isinstance(p, Integer):
            axes.append(list(range(p.low, p.high + 1)))
        elif isinstance(p, Permutation):
            axes.append(list(itertools.permutations(p.item_names)))
        else:
            axes.append(list(p.values))
    names = [p.name for p in space.parameters]
    return [dict(zip(names, values, strict=True)) for values in itertools.product(*axes)]


def frozen(configuration):
    return tuple(sorted(configuration.items()))


PAPER = Space(
    [
        Ordinal("p1", (2, 4)),
        Ordinal("p2", (2, 4)),
        Ordinal("p3", (1, 4)),
        Ordinal("p4", (1, 2, 4)),
        Ordinal("p5", (2, 4, 8)),
    ],
    ["p1 >= p2", "p4 >= p3", "p5 >= 2 * p4"],
)


def test_the_paper_s_figure_4_has_21_leaves():
    assert len(PAPER.feasible.trees) == 2
    assert PAPER.count == 3 * 7
    assert PAPER.is_feasible({"p1": 2, "p2": 2, "p3": 4, "p4": 4, "p5": 8})
    assert not PAPER.is_feasible({"p1": 2, "p2": 4, "p3": 4, "p4": 4, "p5": 8})


@st.composite
def spaces(draw):
    sizes = draw(st.lists(st.integers(1, 4), min_size=2, max_size=5))
    parameters = [Ordinal(f"x{i}", tuple(range(1, n + 1))) for i, n in enumerate(sizes)]
    if draw(st.booleans()):
        parameters.append(Permutation("p", 3))
    names = [f"x{i}" for i in range(len(sizes))]
    name = st.sampled_from(names)
    atoms = st.one_of(
        st.builds(lambda a, b: f"{a} % {b} == 0", name, name),
        st.builds(lambda a, b: f"{a} + {b} <= 5", name, name),
        st.builds(lambda a, b, c: f"{a} * {b} != {c}", name, name, name),
        st.builds(lambda a, n: f"{a} != {n}", name, st.integers(1, 4)),
    )
    constraints = draw(st.lists(atoms, max_size=4))
    if isinstance(parameters[-1], Permutation) and draw(st.booleans()):
        constraints.append("p[0] < p[1] or x0 == 1")
    return parameters, constraints


@settings(max_examples=60, deadline=None)
@given(spaces())
def test_counts_and_members_agree_with_enumeration(parts):
    parameters, constraints = parts
    plain = Space(parameters)
    expected = set()
    for configuration in every(plain):
        scope = dict(configuration)
        if all(eval(text, {}, scope) for text in constraints):
            expected.add(frozen(configuration))
    if not expected:
        with pytest.raises(ConstraintError):
            Space(parameters, constraints)
        return
    space = Space(parameters, constraints)
    assert space.count == len(expected)
    for configuration in every(plain):
        assert space.is_feasible(configuration) == (frozen(configuration) in expected)
    codes = space.sample(np.random.default_rng(0), 20)
    assert space.contains(codes).all()
    for code in codes:
        configuration = space.decode(code)
        assert frozen(configuration) in expected
        assert (space.encode(configuration) == code).all()
    near = {frozen(space.decode(code)) for code in space.neighbours(codes[0])}
    here = space.decode(codes[0])
    one_away = {c for c in expected if sum(dict(c)[k] != here[k] for k in here) == 1}
    assert near == one_away
    several, sizes = space.neighbourhoods(codes[:3], 4)
    each = [space.neighbours(code, 4) for code in codes[:3]]
    assert sizes.tolist() == [len(n) for n in each]
    assert (several == np.concatenate(each)).all()


def chi_square(counts, expected):
    return sum((n - expected) ** 2 / expected for n in counts)


def test_sampling_is_uniform_and_the_biased_variant_is_not():
    space = Space(
        [Integer("a", 1, 12), Integer("b", 1, 12), Categorical("c", ("x", "y"))], ["a % b == 0"]
    )
    draws = 20_000
    codes = space.sample(np.random.default_rng(1), draws)
    seen = Counter(frozen(space.decode(code)) for code in codes)
    assert len(seen) == space.count == 70
    # 69 degrees of freedom: beyond 130 happens once in 10^5
    assert chi_square(seen.values(), draws / space.count) < 130
    codes = space.sample(np.random.default_rng(1), draws, biased=True)
    biased = Counter(frozen(space.decode(code)) for code in codes)
    assert chi_square(biased.values(), draws / space.count) > 1000
    assert space.contains(codes).all()


@pytest.mark.parametrize(
    "name",
    sorted(
        p.name
        for p in (resources.files("tilewright.tuning.problems") / "spaces").iterdir()
        if p.name.endswith(".json")
    ),
)
def test_bundled_spaces_have_the_published_counts(name):
    text = (resources.files("tilewright.tuning.problems") / "spaces" / name).read_text()
    data = json.loads(text)
    space = space_from_dict(data)
    assert space.dense == data["dense"]
    assert space.count == data.get("feasible", space.count)
    codes = space.sample(np.random.default_rng(0), 200)
    assert space.contains(codes).all()
    assert space_from_dict(space_to_dict(space)).count == space.count
    default = space.default()
    if default is not None:
        assert space.encode(default).shape == (space.width,)


def test_equal_subtrees_are_shared():
    text = (resources.files("tilewright.tuning.problems") / "spaces/rise_mm_gpu.json").read_text()
    space = space_from_dict(json.loads(text))
    assert space.count == 154_888_140
    assert sum(tree.nodes for tree in space.feasible.trees) < 1000


def test_counts_beyond_64_bits_are_exact():
    parameters = [Integer(f"x{i}", 1, 1000) for i in range(9)]
    constraints = [f"x{i} != x{i + 1} or x{i} > 1" for i in range(8)]
    space = Space(parameters, constraints)
    # words over 1000 letters without two ones in a row
    ends_one, ends_other = 1, 999
    for _ in range(8):
        ends_one, ends_other = ends_other, 999 * (ends_one + ends_other)
    assert space.count == ends_one + ends_other > 2**63


def test_long_permutations_are_counted_without_listing():
    space = Space([Permutation("p", 10)], ["p[0] < p[1]", "p[8] < p[9]"])
    assert space.count == math.factorial(10) // 4
    codes = space.sample(np.random.default_rng(0), 50)
    for code in codes:
        value = space.decode(code)["p"]
        assert isinstance(value, tuple)
        assert sorted(value) == list(range(10))
        assert value[0] < value[1]
        assert value[8] < value[9]
    near = space.neighbours(codes[0])
    assert space.contains(near).all()
    assert len({space.key(code) for code in near}) == len(near) > 30


def test_named_items_keep_their_names():
    space = Space([Permutation("order", ("i", "j", "k"))], ["order.index('i') < order.index('k')"])
    assert space.count == 3
    assert space.is_feasible({"order": ("i", "k", "j")})
    assert not space.is_feasible({"order": ("k", "j", "i")})


def test_conditional_parameters_are_absent_where_their_condition_fails():
    space = Space(
        [
            Categorical("mode", ("plain", "tiled")),
            Ordinal("tile", (4, 8, 16), when="mode == 'tiled'"),
            Ordinal("inner", (2, 4, 8), when="tile > 4"),
            Real("slack", 0.0, 1.0, when="mode == 'plain'"),
        ],
        ["inner < tile"],
    )
    # plain; tiled 4 (no inner); tiled 8 with inner 2, 4; tiled 16 with inner 2, 4, 8
    assert space.count == 1 + 1 + 2 + 3
    seen = {frozen(space.decode(c)) for c in space.sample(np.random.default_rng(0), 300)}
    shapes = {tuple(name for name, _ in c) for c in seen}
    assert shapes == {("mode", "slack"), ("mode", "tile"), ("inner", "mode", "tile")}
    assert space.is_feasible({"mode": "tiled", "tile": 4})
    assert not space.is_feasible({"mode": "tiled", "tile": 8})
    assert not space.is_feasible({"mode": "plain", "tile": 8, "slack": 0.5})


def test_real_parameters_stay_within_their_constraints():
    space = Space(
        [Ordinal("n", (1, 2, 4)), Real("x", 0.0, 4.0), Real("y", 0.01, 100.0, scale="log")],
        ["x <= n", "x + y >= 1"],
    )
    codes = space.sample(np.random.default_rng(0), 400)
    for code in codes:
        c = space.decode(code)
        assert c["x"] <= c["n"]
        assert c["x"] + c["y"] >= 1
        assert space.is_feasible(c)
    near = space.neighbours(codes[0])
    assert len(near) > 5
    assert space.contains(near).all()


def test_callables_are_constraints_too():
    space = Space(
        [Integer("a", 0, 9), Integer("b", 0, 9)], [(lambda u, v: u // v == 2, ("b", "a"))]
    )
    expected = sum(1 for a in range(10) for b in range(10) if a and b // a == 2)
    assert space.count == expected


def test_draws_do_not_depend_on_how_many_are_compared_at_once(monkeypatch):
    space = Space([Integer("n", 1, 500), Integer("m", 1, 6)], ["n % m == 0"])
    at_once = space.sample(np.random.default_rng(0), 200)
    monkeypatch.setattr(feasible, "_COMPARED", 0)
    np.testing.assert_array_equal(space.sample(np.random.default_rng(0), 200), at_once)


@pytest.mark.parametrize(
    ("constraints", "named"),
    [
        (["a > 10"], "a > 10"),
        (["a + b > 100"], "a + b > 100"),
        (["a < b", "b < a"], "contradict"),
        (["1 > 2"], "1 > 2"),
    ],
)
def test_unsatisfiable_constraints_are_named(constraints, named):
    with pytest.raises(ConstraintError) as error:
        Space([Integer("a", 1, 4), Integer("b", 1, 4)], constraints)
    assert named in str(error.value)


def test_bad_parameters_are_named():
    with pytest.raises(SpaceError, match="tile"):
        Ordinal("tile", ())
    with pytest.raises(SpaceError, match="tile"):
        Ordinal("tile", (0, 1), scale="log")
    with pytest.raises(SpaceError, match="repeated"):
        Space([Integer("a", 0, 1), Integer("a", 0, 1)])
    with pytest.raises(SpaceError, match="depends on its own"):
        Space([Integer("a", 0, 1, when="b == 1"), Integer("b", 0, 1, when="a == 1")])
    with pytest.raises(SpaceError, match="link too many"):
        Space([Integer("a", 0, 10**5), Integer("b", 0, 10**5)], ["a != b"])
    with pytest.raises(ConfigurationError, match="b"):
        Space([Integer("a", 0, 1)]).encode({"a": 1, "b": 1})
    with pytest.raises(SpaceError, match="give the parameters as a list"):
        Space(Integer("a", 0, 1))  # type: ignore[arg-type]
    with pytest.raises(SpaceError, match="give a list of parameters"):
        Space(3)  # type: ignore[arg-type]
    with pytest.raises(SpaceError, match="'tile' is not a parameter; the kinds are Real, Integer"):
        Space({"tile": (1, 2)})  # type: ignore[arg-type]


def plain_order(sizes, scopes, start):
    """The greedy order from a start, by definition; and what it lists."""
    order: list[int] = []
    live: set[int] = set()
    cost, candidates = 0, [start]
    while candidates:
        found = []
        for i in candidates:
            placed = {*order, i}
            waiting = [scope for scope in scopes if not placed.issuperset(scope)]
            after = {j for j in live | {i} if any(j in scope for scope in waiting)}
            listed = math.prod(sizes[j] for j in live) * sizes[i]
            found.append((listed + 4.0 * math.prod(sizes[j] for j in after), i, after, listed))
        _, chosen, live, listed = min(found, key=lambda each: each[:2])
        order.append(chosen)
        cost += listed
        candidates = [i for i in sizes if i not in order]
    return cost, order


@given(
    st.lists(st.sampled_from([1, 2, 4, 8, 16]), min_size=1, max_size=7),
    st.lists(st.sets(st.integers(0, 6), min_size=1, max_size=3), max_size=7),
)
def test_levels_are_in_the_greedy_order_with_the_fewest_live_values(sizes, scopes):
    by_place = dict(enumerate(sizes))
    kept = [tuple(sorted(scope)) for scope in scopes if max(scope) < len(sizes)]
    starts = sorted(by_place, key=lambda i: (by_place[i], i))
    orders = [plain_order(by_place, kept, start) for start in starts]
    assert feasible._order(by_place, kept) == min(orders, key=lambda each: each[0])[1]


def test_constraints_nested_too_deeply_are_refused_with_the_cure():
    sums = [" + ".join(["a"] * terms) for terms in (150, 400)]
    assert Space([Integer("a", 1, 4)], [f"{sums[0]} < 500"]).count == 3
    with pytest.raises(ConstraintError, match=r"40\d levels deep.* group long sums"):
        Space([Integer("a", 1, 4)], [f"{sums[1]} < 500"])
    assert Space([Integer("a", 1, 4)], [" + ".join([f"({sums[0]})"] * 4) + " < 1300"]).count == 2


@pytest.mark.parametrize(
    ("constraints", "cure"),
    [
        ([lambda a: a > 2], r"the names of the parameters it takes as well"),
        ("a > 2", r"give the constraints as a list: \['a > 2'\]"),
        (3, "give a list of constraints"),
        ([3], "neither a text nor a pair"),
        ([(max, "ab")], "neither a text nor a pair"),
        ([(max, ["a", "c"])], "'c' is unknown"),
    ],
)
def test_what_is_no_constraint_is_refused_with_the_cure(constraints, cure):
    with pytest.raises(ConstraintError, match=cure):
        Space([Integer("a", 1, 4), Integer("b", 1, 4)], constraints)


@pytest.mark.parametrize(
    ("parameters", "constraints"),
    [
        ([Integer("n", 1, 2_000_000), Integer("m", 1, 8)], ["n % m == 0"]),
        ([Categorical("k", ("a", "b")), Integer("n", 1, 2_000_000, when="k == 'a'")], []),
    ],
)
def test_integers_of_too_many_values_for_constraints_are_refused_with_the_cure(
    parameters, constraints
):
    with pytest.raises(ConstraintError, match=r"n has 2000000 values.* coarser values"):
        Space(parameters, constraints)


def test_an_infinite_value_is_not_feasible():
    assert not Space([Integer("n", 1, 8)]).is_feasible({"n": math.inf})


def test_numbers_of_numpy_are_numbers():
    own = Space([Integer("n", 8, 32, 16), Ordinal("o", (8, 16)), Real("x", 1.0, 2.0)])
    numpy = Space(
        [
            Integer("n", np.int64(8), np.int32(32), np.int64(16)),  # type: ignore[arg-type]
            Ordinal("o", np.array([8, 16])),  # type: ignore[arg-type]
            Real("x", np.float64(1.0), np.float32(2.0)),  # type: ignore[arg-type]
        ]
    )
    assert numpy.parameters == own.parameters
    assert json.dumps(space_to_dict(numpy)) == json.dumps(space_to_dict(own))
