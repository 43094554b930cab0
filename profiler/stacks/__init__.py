"""The stack sampler: what each recorded process was doing at random moments.

A helper process (helper.py) reads the stacks of the training's threads out of their memory
(memory_access.py, thread_stacks.py), without stopping them: the training runs no code for a
sample, gets no signal, and needs not give the GIL away. So Python code, C code that holds or
releases the GIL, sleeping and system calls are all seen as they are. Where Python keeps what, each
training finds out about itself (interpreter_layout.py). stack_sampler.py is the training's part: it starts the
helper, and tells it of processes and threads. What the helper writes, store/stacks_reader.py reads.

Signals would need no helper. But Python's own handler for them, faulthandler's, reads a frame that
may be half made, and crashes then (benchmarks/stack_signals.py).
"""
