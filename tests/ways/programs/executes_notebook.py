"""nbclient executes a notebook from a script."""

from pathlib import Path

import nbformat
from nbclient import NotebookClient

if __name__ == "__main__":
    notebook = nbformat.read(Path(__file__).with_name("notebook.ipynb"), as_version=4)
    NotebookClient(notebook, kernel_name="python3").execute()
