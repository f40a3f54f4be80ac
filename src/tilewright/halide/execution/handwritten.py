"""Run a pipeline that a user's function builds and schedules, in a measuring worker."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import halide as hl

from tilewright.halide.execution.binding import LivePipeline, scalar_param
from tilewright.halide.execution.inputs import InputError, Inputs
from tilewright.halide.execution.runner import Runner, prepare_target
from tilewright.halide.frontend.live import to_pipeline
from tilewright.measure import load_builder


class Handwritten(Runner):
    """The pipeline that a function ``hand(target, …)`` builds, with the constraints that it sets.

    The pipeline is not rebuilt from serialised bytes, which would lose the bounds and alignments
    that a hand-written schedule may rely on. The payload is that of `Runner` with ``handwritten``
    (the fields of `tilewright.halide.execution.session.Source`) instead of a schedule.
    """

    def __init__(self, payload: Mapping[str, Any]) -> None:
        """Build, compile and bind the pipeline. Raises the exceptions of the function."""
        began = time.perf_counter()
        self._target = prepare_target(payload["target"])
        self._inputs = Inputs.from_json(payload["inputs"])
        source = payload["handwritten"]
        sys.path.append(str(Path(source["path"]).resolve().parent))
        function = load_builder(f"{Path(source['path']).resolve()}:{source['function']}")
        built = to_pipeline(function(self._target, **source["arguments"]))
        self._live = _rebound(built, self._inputs)
        self._prepared = time.perf_counter() - began
        self._finish(payload)


class _Image:
    """A buffer parameter of a live pipeline, with the methods of ImageParam that `bind` uses."""

    def __init__(self, parameter: Any) -> None:
        self._parameter = parameter

    def set(self, buffer: Any) -> None:
        """Bind a ``halide.Buffer``."""
        self._parameter.set_buffer(buffer)

    def get(self) -> Any:
        """Return the bound buffer; an undefined one if there is none."""
        return self._parameter.buffer()

    def reset(self) -> None:
        """Unbind the buffer."""
        self._parameter.set_buffer(hl.Buffer())


def _rebound(pipeline: Any, inputs: Inputs) -> LivePipeline:
    """Return the pipeline with its buffer parameters and with scalars that can be set."""
    serialized, parameters = hl.serialize_pipeline(pipeline, get_params=True)
    outputs = {func.name() for func in pipeline.outputs()}
    buffers = {name: p for name, p in parameters.items() if p.is_buffer()}
    wanted = {buffer.name for buffer in inputs.buffers}
    given = {name for name in buffers if name.split(".")[0] not in outputs}
    if given != wanted:
        raise InputError(
            f"the hand-written pipeline must have the inputs of the pipeline to schedule, "
            f"{', '.join(sorted(wanted)) or 'none'}, not {', '.join(sorted(given)) or 'none'}"
        )
    scalars = {s.name: scalar_param(s) for s in inputs.scalars}
    both = {**buffers, **{name: param.parameter() for name, param in scalars.items()}}
    return LivePipeline(
        hl.deserialize_pipeline(bytes(serialized), both),
        {name: _Image(buffers[name]) for name in wanted},
        scalars,
    )
