"""Leases: the client leases units of hot keys, and decides their checks in its own process."""
