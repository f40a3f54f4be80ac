from .machine_checks import check_machine as check_machine
from .scheduler_checks import (
    PIPELINES as PIPELINES,
    check_scheduler as check_scheduler,
)
from .cost_model_checks import check_cost_model as check_cost_model
from .estimator_checks import check_estimator as check_estimator
from .journal_checks import check_journal as check_journal
