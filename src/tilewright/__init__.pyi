# The rooms, in the order in which data flows through them.
from . import machines as machines
from . import measure as measure
from . import records as records
from . import report as report
from . import tuning as tuning
from . import prediction as prediction
from . import mapping as mapping
from . import halide as halide
from . import patterns as patterns
from . import testing as testing

# What most programs need of them.
from .errors import TilewrightError as TilewrightError
from .halide import Budget as Budget
from .halide import Comparison as Comparison
from .halide import Measuring as Measuring
from .halide import Planning as Planning
from .halide import Result as Result
from .halide import compare as compare
from .halide import schedule as schedule
from .tuning import Space as Space
from .tuning import tune as tune

__version__: str
