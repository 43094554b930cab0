"""Rules about a run's input."""
