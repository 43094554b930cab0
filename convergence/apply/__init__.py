"""Applies fixes to an unchanged training: ``feedline run --fix warmup=5ep,lr_rule=sqrt train.py``."""

from feedline.convergence.apply.request import Request, parse

__all__ = ["Request", "parse"]
