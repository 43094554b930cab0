"""Runs of hundreds of ranks.

They are reduced rank by rank, on the cores of one machine or on a Dask cluster, and put together.
"""
