"""The acceptance table: the cost of an eight times larger batch in a small training, what each fix
recovers, and with which confidence.

``arms`` says what is trained, ``train`` trains one arm with one seed, ``race`` all of them on all
cores, ``summary`` makes figures, p values, claims and gates of it.
"""
