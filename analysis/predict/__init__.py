"""What a change to the input would make of a recorded training: the replay of its loader, and what
findings' fixes change in it.
"""
