from .model import (
    Attempt as Attempt,
    Bar as Bar,
    Dag as Dag,
    GroupRow as GroupRow,
    NestLine as NestLine,
    NodeKind as NodeKind,
    GraphNode as GraphNode,
    Progress as Progress,
    ScheduleReport as ScheduleReport,
    SizeRow as SizeRow,
)
from . import units as units
from . import standing as standing
from . import table as table
from . import text as text
from . import charts as charts
from . import pages as pages
