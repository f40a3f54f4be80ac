from .html import (
    Html as Html,
    join as join,
    tag as tag,
)
from .page import (
    Figure as Figure,
    Section as Section,
    folded as folded,
    source as source,
    standing_figure as standing_figure,
    html_page as html_page,
    html_table as html_table,
    with_links as with_links,
)
from .fragment import fragment as fragment
from .schedule import (
    schedule_page as schedule_page,
    schedule_pictures as schedule_pictures,
)
from .prediction import (
    PredictionReport as PredictionReport,
    prediction_page as prediction_page,
)
