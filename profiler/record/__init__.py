"""What the taps write with: the recorder of a process.

What they share about the moment and the program is here, too. Record format: events.py.
"""
