"""Reads what ``nsys export --type sqlite`` writes, of any schema so far, as traces of one process
and device each.
"""
