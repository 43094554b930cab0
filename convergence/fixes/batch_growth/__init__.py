"""Batch growth: increases the batch where the learning rate would decay."""

from feedline.convergence.fixes.batch_growth.fix import FIX
from feedline.convergence.fixes.batch_growth.sampler import GrowingBatchSampler, growth_stages
from feedline.convergence.fixes.batch_growth.schedule import SamplesSchedule

__all__ = ["FIX", "GrowingBatchSampler", "SamplesSchedule", "growth_stages"]
