"""Seconds with an owner, the findings that claim them, and what rules read."""
