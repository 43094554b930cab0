"""The run folder: its files, and how they are written and read.

RUN/
  rank0/
    manifest.json         who ran what, what was attached, how it ended (manifest.py)
    segments/*.seg        while the run goes on, or after it was killed: one file per process (segment.py)
    events.parquet        after a run that ended: all segments in one (compact.py)
    totals.parquet        sums and histograms over every record, also those that a long run forgot
    gauges.bin, .json     the machine, sampled
    stacks.log            which lines of code ran, sampled (stacks_reader.py)
  report.html, report.json, trace.json.gz
"""
