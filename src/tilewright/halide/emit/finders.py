"""Source text of the functions with which printed schedules find Funcs and parameters by name.

Halide adds a number to a name that occurs again (``blur$1``), so that automatic names differ
between builds. The functions group Funcs by the name without the number, sorted by the number, from
the oldest to the newest.
"""

from __future__ import annotations

PYTHON_FINDER = '''def find_funcs(pipeline, count):
    """Return the pipeline's Funcs by name without Halide's number, oldest first."""
    found = {}
    for i in range(count):
        func = pipeline.get_func(i)
        name = func.name()
        numbered = re.fullmatch(r"(.*)\\$(\\d+)", name) or re.fullmatch(r"([a-z])(\\d+)", name)
        base, number = (numbered[1], int(numbered[2])) if numbered else (name, 0)
        found.setdefault(base, []).append((number, name, func))
    return {
        base: [item[2] for item in sorted(group, key=lambda item: item[:2])]
        for base, group in found.items()
    }
'''

PYTHON_KNOWN = """def find_params(pipeline):
    # Return the pipeline's inputs and scalars by name without Halide's number, oldest first.
    found = {}
    for name, param in hl.serialize_pipeline(pipeline, get_params=True)[1].items():
        numbered = re.fullmatch(r"(.*)\\$(\\d+)", name) or re.fullmatch(r"([a-z])(\\d+)", name)
        base, number = (numbered[1], int(numbered[2])) if numbered else (name, 0)
        found.setdefault(base, []).append((number, name, param))
    return {
        base: [item[2] for item in sorted(group, key=lambda item: item[:2])]
        for base, group in found.items()
    }


def known(param, field, dimension, value, least=False, multiple=False):
    # Return the condition that a parameter's value or size equals `value` (with least: is at least
    # `value`; with multiple: is a multiple of it). Halide gives no expression of a parameter, so
    # write the condition with a stand-in of the same name, serialise it, and read it back with the
    # parameter.
    if param.is_buffer():
        image = hl.ImageParam(param.type(), param.dimensions(), param.name())
        number = getattr(image.dim(dimension), field)()
    else:
        number = hl.Param(param.type(), param.name())
    condition = hl.Func("known")
    equal = number % value == 0 if multiple else number == value
    condition[()] = number >= value if least else equal
    serialized = hl.serialize_pipeline(hl.Pipeline(condition))
    return hl.deserialize_pipeline(serialized, {param.name(): param}).get_func(0).value()
"""

# The part of both C++ functions that splits a name into the given name and Halide's number.
_CPP_NUMBERED = """\
        const size_t digits = name.find_last_not_of("0123456789") + 1;
        const bool dollar = digits > 0 && name[digits - 1] == '$';
        const bool letter = digits == 1 && name[0] >= 'a' && name[0] <= 'z';
        std::string base = name;
        long number = 0;
        if (digits < name.size() && (dollar || letter)) {
            base = name.substr(0, dollar ? digits - 1 : digits);
            number = std::stol(name.substr(digits));
        }
"""

CPP_KNOWN = (
    """#ifndef TILEWRIGHT_FIND_PARAMS
#define TILEWRIGHT_FIND_PARAMS
// Returns the pipeline's inputs and scalars by name without Halide's number, oldest first.
inline std::map<std::string, std::vector<Halide::Parameter>> find_params(
    Halide::Pipeline &pipeline) {
    std::vector<uint8_t> data;
    std::map<std::string, Halide::Parameter> params;
    Halide::serialize_pipeline(pipeline, data, params);
    std::map<std::string, std::map<std::pair<long, std::string>, Halide::Parameter>> found;
    for (const auto &item : params) {
        const std::string &name = item.first;
"""
    + _CPP_NUMBERED
    + """        found[base].emplace(std::make_pair(number, name), item.second);
    }
    std::map<std::string, std::vector<Halide::Parameter>> result;
    for (const auto &group : found) {
        for (const auto &item : group.second) {
            result[group.first].push_back(item.second);
        }
    }
    return result;
}
// Returns the condition that a parameter's value or size equals `value` (with least: is at least
// `value`; with multiple: is a multiple of it).
inline Halide::Expr known(const Halide::Parameter &param, const std::string &field, int value,
                          bool least = false, bool multiple = false) {
    const Halide::Type type = field.empty() ? param.type() : Halide::Int(32);
    const Halide::Expr number =
        Halide::Internal::Variable::make(type, param.name() + field, param);
    if (multiple) {
        return number % value == 0;
    }
    return least ? number >= value : number == value;
}
#endif
"""
)

CPP_FINDER = (
    """#ifndef TILEWRIGHT_FIND_FUNCS
#define TILEWRIGHT_FIND_FUNCS
// Returns the pipeline's Funcs by name without Halide's number, oldest first.
inline std::map<std::string, std::vector<Halide::Func>> find_funcs(Halide::Pipeline &pipeline,
                                                                   size_t count) {
    std::map<std::string, std::map<std::pair<long, std::string>, Halide::Func>> found;
    for (size_t i = 0; i < count; i++) {
        Halide::Func func = pipeline.get_func(i);
        const std::string name = func.name();
"""
    + _CPP_NUMBERED
    + """        found[base].emplace(std::make_pair(number, name), func);
    }
    std::map<std::string, std::vector<Halide::Func>> funcs;
    for (const auto &group : found) {
        for (const auto &item : group.second) {
            funcs[group.first].push_back(item.second);
        }
    }
    return funcs;
}
#endif
"""
)
