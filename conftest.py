"""What the tests of every room have: the fixtures of the real cluster, and limits. Nothing starts before a test asks for it."""

pytest_plugins = ["e2e.fixtures", "tests.limits"]
