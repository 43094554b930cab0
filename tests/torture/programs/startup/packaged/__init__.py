"""A package."""

from . import parts

print("imported", __name__, parts.__name__)
