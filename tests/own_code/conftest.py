"""Trainings that get their batches without a loader, recorded in this process."""

from recording_schedule.conftest import one_thread as one_thread
from recording_schedule.conftest import recorded as recorded
