"""What rules ask of a run, each computed in one place.

Among it are waits, CPUs, storage, physics of stages, and workers that would be enough.
"""
