"""A test for all rows of a long table, because a test for each row costs milliseconds in every process that collects the tests."""

import functools
import inspect


def every(names, rows):
    """Call the test with each row, like `pytest.mark.parametrize`, but as a single test. Report all rows that fail."""
    rows, keys = list(rows), (names,) if isinstance(names, str) else tuple(names)
    assert rows, "the table is empty"

    def decorate(test):
        assert not inspect.iscoroutinefunction(test), "a coroutine would not be awaited: use pytest.mark.parametrize"

        @functools.wraps(test)
        def loop(**fixtures):
            failures = []
            for row in rows:
                values = dict(zip(keys, (row,) if isinstance(names, str) else row, strict=True))
                try:
                    test(**values, **fixtures)
                except Exception as error:  # noqa: BLE001  the other rows are tested, too
                    error.add_note(f"row: {str(values)[:1000]}")
                    failures.append(error)
            if failures:
                raise ExceptionGroup(f"{len(failures)} of {len(rows)} rows failed", failures)

        del loop.__wrapped__  # pytest would read the parameters of the test
        signature = inspect.signature(test)
        fixtures = [fixture for name, fixture in signature.parameters.items() if name not in keys]
        loop.__signature__ = signature.replace(parameters=fixtures)
        return loop

    return decorate
