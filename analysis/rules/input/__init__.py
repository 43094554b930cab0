"""Rules about the input of a recorded run, and what they work with: held.py, handover.py, storage.py, cpus.py, expected.py, why_slow.py."""
