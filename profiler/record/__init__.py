"""What the taps write with: the recorder of a process, and what they share about the moment and the
program. Record format: events.py.
"""
