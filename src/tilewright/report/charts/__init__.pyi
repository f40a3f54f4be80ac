from .svg import reflowing as reflowing
from .bars import bar_chart as bar_chart
from .scatter import (
    Points as Points,
    scatter_plot as scatter_plot,
)
from .lines import (
    Line as Line,
    line_chart as line_chart,
)
from .parallel import (
    Axis as Axis,
    parallel_coordinates as parallel_coordinates,
)
from .gantt import (
    GanttTask as GanttTask,
    gantt_chart as gantt_chart,
)
from .dag import dag_picture as dag_picture
from .nest import nest_html as nest_html
