"""What one rank did, from its records.

Steps, stages, waits, costs per sample, CPU, GPU and own code.
"""
