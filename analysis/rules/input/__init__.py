"""Rules about a run's input, and what they work with: input_wait.py, handover.py, storage.py,
cpus.py, expected.py, why_slow.py.
"""
