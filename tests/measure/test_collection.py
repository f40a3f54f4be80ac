"""The pause of the garbage collector."""

import gc

import pytest

from tilewright.measure import collection_paused


@collection_paused()
def fails_while_paused():
    with collection_paused():
        assert not gc.isenabled()
    assert not gc.isenabled()
    raise ZeroDivisionError


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_as_before_after_a_pause_that_fails(enabled):
    before = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        with pytest.raises(ZeroDivisionError):
            fails_while_paused()
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if before else gc.disable)()
