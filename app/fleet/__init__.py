"""Hosts, workers, devices and the leases on them."""
