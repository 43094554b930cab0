"""The only place where feedline creates, replaces and removes files.

Nothing outside this package opens a file for writing, renames or deletes (tests/files holds the
product to it). What may be removed:

- single.py: a file under a name that begins with PART, which this process made a moment ago; a regular file that the caller names.
- owned.py: a file that the list of its folder (own_folders.py) names.
- own_folders.py: the list, and removal of a folder whose list names all that is in it, as long as no process uses it.
- output.py: a regular file that the user named and allowed to be overwritten (-f).
"""
