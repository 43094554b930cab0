"""The session that begins a recording in this process, attaches the taps, and ends it."""
