"""`train_model`: adapts the learned scheduler's cost model to recorded measurements."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilewright.errors import TilewrightError
from tilewright.halide.schedulers.learned.cost_model import model_of_file
from tilewright.halide.schedulers.learned.training import TrainedModel, train
from tilewright.halide.schedulers.task import make_task
from tilewright.records import Records, default_path


def train_model(
    pipelines: Mapping[str, Any],
    *,
    records: str | os.PathLike[str] | None = None,
    model: str | os.PathLike[str] | None = None,
    calibration: bool = True,
    seed: int = 0,
) -> TrainedModel:
    """Fit the cost model of the learned scheduler to what the records have of some pipelines.

    Args:
        pipelines: the pipelines by name, in any form that `schedule` accepts, with estimates of all
            sizes. Schedules that their Funcs have do not count.
        records: the file of measurements, by default that in the user's cache directory.
        model: the file of the model to adapt, by default the one that comes with the package.
        calibration: use the stored calibration of this CPU, if there is one.
        seed: which schedules are left out together to judge the model.

    Returns:
        The adapted model, for `Planning.model` after ``write_text(found.model.to_json())``.

    Raises:
        TilewrightError: there are no records, or too few schedules of these pipelines were measured
            on this machine; also the errors of `load`.
    """
    path = default_path() if records is None else Path(records)
    if not path.is_file():
        raise TilewrightError(
            f"there are no records in {path}: measure schedules first, with tilewright schedule "
            "--mode tune"
        )
    start = model_of_file(model)
    tasks = {
        name: make_task(
            pipeline, target="host", discard_schedule=True, name=name, calibration=calibration
        )
        for name, pipeline in pipelines.items()
    }
    with Records(path) as opened:
        return train(tasks, opened, start=start, seed=seed)
