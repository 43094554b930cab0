"""Probes: one file measures one ceiling each."""
