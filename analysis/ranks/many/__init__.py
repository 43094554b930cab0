"""Runs of hundreds of ranks: reduced rank by rank, on the cores of one machine or on a Dask
cluster, and put together.
"""
