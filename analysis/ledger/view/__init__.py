"""What rules ask of a run, each computed in one place: waits, CPUs, storage, physics of stages,
workers that would be enough.
"""
