"""How two runs, or several runs of two versions, differ.

It says what changed, by how much, and whether it is more than noise.
"""
