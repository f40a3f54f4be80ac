"""Black-box tuning (BaCO): parameters, constraints, feasible sets, surrogates, the tuner.

The room in the order in which data flows:

- ``space``: parameters and known constraints become a `Space` with its feasible set.
- ``bayes``: encoding, surrogates, acquisition, and one decision of the search.
- ``settings`` and ``trial``: the pieces of the search, suggestions and reported outcomes.
- ``tuner``: a `Tuner` suggests configurations and learns from their outcomes.
- ``tune`` and ``tunable``: the loop of suggesting, evaluating and reporting.
- ``isolated``: objectives that may crash or hang, each call in a worker process.
- ``journal``: trials in the records, restored by the next run.
- ``report`` and ``notebook``: pages and tables about runs.
- ``command_line``: problem files of ``tilewright tune``, and the protocol over pipes.
- ``problems``: spaces and problems that come with the package.
- ``interop``: interfaces and file formats of other tuners.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
