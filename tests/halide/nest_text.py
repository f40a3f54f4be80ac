"""Loop nests of reports as text, to compare them with."""

from tilewright.report import units


def nest_text(lines):
    """A loop nest as indented text."""
    return "\n".join("  " * line.depth + nest_line(line) for line in lines)


def nest_line(line):
    """One line of a loop nest, without its indentation."""
    if line.kind == "for":
        mapping = "" if line.mapping in ("", "serial") else f"{line.mapping} "
        extent = "" if line.extent is None else f" in {line.extent}"
        return f"for {mapping}{line.name}{extent}"
    if line.kind == "allocate":
        details = [line.memory] if line.memory else []
        if line.bytes is not None:
            details.append(units.size(line.bytes))
        return f"allocate {line.name}" + (f" ({', '.join(details)})" if details else "")
    if line.kind == "compute":
        return f"{line.name} = …" + (f" ({line.mapping})" if line.mapping else "")
    return f"{line.kind} {line.name}" + (f" ({line.mapping})" if line.mapping else "")
