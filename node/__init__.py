"""The part of DRA that runs on nodes: publishes devices, prepares allocated devices for containers, and audits the devices in use."""
