"""Looks at a training from outside that was started without feedline.

watch.py finds its processes and samples the stacks of their threads. Where they run
the Python that feedline runs, memory_reader.py finds the stacks in their memory, and
profiler/stacks reads them: nothing is stopped, and no other program is needed. Other Pythons are read by py-spy
(py_spy.py). What the kernel says of each process is in kernel.py. Nothing is written into them.
"""
