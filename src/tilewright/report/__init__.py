"""Reports for people: explanations, tables, charts, loop nests, graphs of pipelines.

The room in the order in which data flows:

- ``model``: the content of a report as plain data, which any room can fill in.
- ``units``: times, sizes and ratios in few characters.
- ``standing``: how a schedule compares with others: a factor or a tie.
- ``table`` and ``text``: tables and explanations as plain text.
- ``charts``: charts and graphs as SVG.
- ``pages``: self-contained HTML pages.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
