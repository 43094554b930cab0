"""A run as pandas data frames: ``feedline.load(RUN).steps`` and so on. One module per frame; ``table.py`` says what a column is."""

from feedline.analysis.report.frames.collectives import COLLECTIVES
from feedline.analysis.report.frames.findings import FINDINGS
from feedline.analysis.report.frames.gauges import GAUGES
from feedline.analysis.report.frames.samples import SAMPLES
from feedline.analysis.report.frames.steps import STEPS

#: In the order of docs/api.md.
FRAMES = (STEPS, SAMPLES, COLLECTIVES, GAUGES, FINDINGS)
