"""Vendors' drivers are built by their vendors, so their tests are collected only where a directory of their programs is named."""

import os

collect_ignore = [] if os.environ.get("DRAWBRIDGE_DRIVERS") else ["test_plugin.py", "test_nvidia.py"]
