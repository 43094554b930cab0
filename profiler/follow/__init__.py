"""Processes below ``feedline run``: each records itself once it starts to train.

``start`` runs when Python starts, ``noticing`` once the program imports torch, and a Session begins
with the first batch, forward, backward or update. A process that does none of this pays for nothing
but the start.
"""

# what is recorded, and how (recording_settings.py); set by ``feedline run`` for the processes below
# it
RUN_VARIABLE = "FEEDLINE_RUN"
SWITCH_VARIABLE = "FEEDLINE"  # set by a person: as ``feedline run``, without the command
