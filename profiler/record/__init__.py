"""What the taps write with: the recorder of one process, and what they share about the moment and the program."""
