"""Reads what ``nsys export --type sqlite`` writes, of any schema so far.

It becomes traces of one process and device each.
"""
