"""Rules about what the traces of other profilers show: where the time of the device went."""
