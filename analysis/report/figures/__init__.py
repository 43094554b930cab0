"""The figures of the HTML report.

Each function takes a part of a Report and returns SVG text, or None when there is nothing to draw.
Positions along x are percentages, so that text keeps its size at any width; paths live in an inner
``svg`` that is stretched. A label that needs room carries a class that shows it only from a certain
width on (``svg.room_class``).
"""
