"""What N ranks give, measured or predicted, and why it is not N times as much."""
