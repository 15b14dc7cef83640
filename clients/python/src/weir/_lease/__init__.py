"""Leases: units of hot keys that the client holds in advance, so that it decides their checks in its own process."""
