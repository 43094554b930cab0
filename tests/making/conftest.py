"""Trainings that get their batches without a loader, recorded in this process."""

from rests.conftest import one_thread as one_thread
from rests.conftest import recorded as recorded
