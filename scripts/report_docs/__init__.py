"""What the documentation says of the fields of the report and of the data frames.

No command of feedline needs it.
"""
