"""A user's own."""

import os

print("customized", flush=True)
os.environ["CUSTOMIZED"] = "yes"
