"""The fixtures of the real cluster are there for the tests of every room; nothing starts before a test asks for it."""

pytest_plugins = ["e2e.fixtures"]
