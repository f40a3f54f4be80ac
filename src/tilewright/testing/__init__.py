"""Conformance checks for your own schedulers, cost models, journals, estimators and machines.

Each is a plain function that raises `AssertionError` and names the failed check, for use in any
test framework::

    from tilewright.testing import check_estimator

    def test_my_model():
        check_estimator(MyModel())

Tilewright's own schedulers, cost models, journals, estimators and machines pass the same checks.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
