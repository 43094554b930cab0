"""What a run tells about its convergence.

It is the noise scale, the price of its batch, what is wrong with its set-up, and what to try.
"""
