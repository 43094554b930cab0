"""The acceptance table: what a batch eight times as large costs a small training, what each fix gives back, and how sure that is.

``arms`` says what is trained, ``train`` trains one arm with one seed, ``race`` all of them on all cores, ``summary`` makes figures, p
values, claims and gates of it.
"""
