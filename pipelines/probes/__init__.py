"""Probes: each file measures one ceiling."""
