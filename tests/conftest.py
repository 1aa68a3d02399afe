import gc


def pytest_collection_finish() -> None:
    """What is imported by now stays: no collection of a test's garbage looks through it again."""
    gc.collect()
    gc.freeze()
