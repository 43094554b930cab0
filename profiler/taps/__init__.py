"""The taps: hooks in other libraries.

A tap that cannot attach is reported, and the training continues.
"""
