import gc
from contextlib import suppress

import pytest

with suppress(ImportError):  # the tests that need a device run without it, too
    from hypothesis import settings

    # No test is timed: how long one example takes says how busy the machine is.
    settings.register_profile("unhurried", deadline=None)
    settings.load_profile("unhurried")


@pytest.hookimpl(tryfirst=True)  # before xdist reads the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests for which something is made once a module (a session, say) run in one process.

    Others would make it again. A group is of one module, and of one parameter of what is made.
    """
    for item in items:
        made = [
            definitions[-1]
            for definitions in item._fixtureinfo.name2fixturedefs.values()
            if definitions[-1].scope == "module"
        ]
        if made and item.get_closest_marker("xdist_group") is None:
            parameters = item.callspec.params if hasattr(item, "callspec") else {}
            chosen = [str(parameters[f.argname]) for f in made if f.params and f.baseid]
            item.add_marker(pytest.mark.xdist_group(" ".join([item.parent.nodeid, *chosen])))


def pytest_collection_finish() -> None:
    """What is imported by now stays: no collection of a test's garbage looks through it again."""
    gc.collect()
    gc.freeze()
