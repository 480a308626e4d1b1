"""The port over a store in this process: what an API server does to objects, without one."""
