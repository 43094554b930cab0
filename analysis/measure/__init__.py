"""What one rank did: steps, stages, waits, costs per sample, CPU, GPU and own code, from its
records.
"""
