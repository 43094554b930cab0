"""Traces that others made, Kineto's and Nsight Systems', as columns; and what they say."""
