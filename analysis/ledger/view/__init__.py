"""What rules ask of a run, each computed in one place.

the wait for batches   input_wait, handover, handover_cost, workers_needed
the loader's call      loader_call
what samples take      sample, expected and slow_stage (against bytes and pixels), storage, page_faults
the CPUs               cpus, cheaper
code in sampled stacks slow_code (samples), loop_code, model_code, own_functions, hottest_line
no loader              batch_function
the steps              enough_steps, trend
a GPU                  launches, tensor_cores
ranks                  recorded_ranks
"""
