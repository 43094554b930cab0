"""What each field of the JSON report means: the source of the schema's descriptions and of the tables in docs/report.md."""

from report_docs import convergence_fields, rank_fields, step_fields
from report_docs.field import Field

_NO_SCHEDSTAT = "the kernel does not report it (no schedstat)"
_NO_SIZE = "no step, or batches of unknown size"
_NO_INTERVAL = "fewer than eight steps, or steps that vary so much that it has no end"
_NO_DETAIL = "no sample was measured in detail"
_NO_READING = "nothing was sampled while the steps ran: a run of less than a quarter of a second, or no /proc"

FIELDS: dict[str, dict[str, Field]] = {
    "Report": {
        "run": Field("", "What was run, when, where"),
        "verdict": Field("", "What holds the training back, in a few sentences, or that nothing measured does"),
        "findings": Field(
            "",
            "Causes with evidence and fix, most important first; at most three that are not of severity info. Those about the training "
            "loop (gpu_waits, float32_products, recompilation, checkpoint_time, optimizer_time, own_code, evaluation_time) come in "
            "addition",
        ),
        "throughput": Field("", "How fast the training went"),
        "step": Field("", "The mean training step, split into stages", "no step was recorded"),
        "workers": Field("", "What making samples costs in the training loader's processes", "no loader was seen"),
        "loaders": Field("", "Every loader that the program made"),
        "ranks": Field(
            "",
            "Rank number (as text) -> that rank in short. Figures outside `ranks` and `comm` are those of the rank `shown`, unless they "
            "are described as those of all ranks",
        ),
        "gauges": Field("", "Sampled quantities of the machine: CPU, memory, disk, GPU"),
        "hooks": Field("", "What was attached to the training, and what could not be"),
        "notes": Field("", "What a reader should know about these figures: what is missing and why, what was left out"),
        "roofline": Field("", "The limits of the run's throughput", "no step, too few of them, or batches of unknown size"),
        "comm": Field("", "Communication between the ranks", "one rank, or no collective was seen: hooks and notes say why"),
        "traces": Field("", "What traces of other tools hold", "feedline recorded the run itself"),
        "convergence": Field(
            "",
            "Losses, metrics, learning rate, noise scale, and mistakes in the setup",
            "nothing was trained",
        ),
        "cpus": Field("", "Who used the CPUs while the steps ran", "the number of CPUs is unknown, or no step was recorded"),
        "shown": Field(
            "",
            "The rank that the figures describe: the one that the others wait for, or else the lowest. Of traces of other tools, figures "
            "are always those of the lowest",
            "the report is of traces of other tools",
        ),
        "ledger": Field("", "Where the time of the step and of the run went, of the rank `shown`", "no step was recorded"),
        "together": Field("", "Throughput predicted with all predicted fixes of the loader at once", "fewer than two fixes are predicted"),
        "headline": Field("", "What must be known before the verdict: a crash, a kill, a full disk; empty if the run ended normally"),
        "schema_version": Field(
            "", "Version of this structure. It changes when a field is removed or changes its meaning, not when one is added"
        ),
    },
    "RunInfo": {
        "name": Field("", "Name of the run folder"),
        "path": Field("", "The run folder"),
        "state": Field(
            "",
            "finished; ended (the program itself ended the process, as multiprocessing.Pool does with its workers); "
            "cut (its process was killed; everything up to then is here); or live (still going)",
        ),
        "command": Field("", "The command line, one item per argument. Values that might be private are masked"),
        "started": Field("", "When recording began, ISO 8601"),
        "duration_s": Field("s", "From the beginning to the end of recording"),
        "exit_code": Field("", "The script's exit code", "the run was cut or is live"),
        "ranks": Field("", "How many processes trained together"),
        "versions": Field("", "Name -> version: feedline, python, torch and others"),
        "machine": Field(
            "", "Name -> value: cpus, effective_cpus (affinity and quota), affinity_cpus, cpu_quota, memory_bytes, shm_bytes, system"
        ),
        "model": Field("", "Class of the outermost module that was trained; empty: not seen"),
        "optimizer": Field("", "Class of each optimizer and its first learning rate, as in `SGD, lr 0.1`; empty: not seen"),
        "ended_by": Field("", "What ended it: the type of an exception, or the name of a signal, if known; empty otherwise"),
        "ended_at": Field(
            "", "The line of the program that raised the exception or was interrupted, as in train.py:31, if known; empty otherwise"
        ),
        "waited_s": Field(
            "s", "How long the main process had waited, when the run ended, for a batch that did not come", "it did not wait for one then"
        ),
        "silent_s": Field(
            "s", "For how long nothing had been recorded when the run failed or was interrupted", "it was less than 3 s, or is unknown"
        ),
        "stopped": Field("", "Why recording ended before the training did, as in No space left on device; empty otherwise"),
    },
    "Throughput": {
        "samples_per_s": Field(
            "samples/s",
            "Samples per second in training steps of the shown rank. All means exclude the first step, if the run has four or more, and "
            "all steps up to the one whose FLOP were counted, unless these are more than half",
            _NO_SIZE,
        ),
        "steps_per_s": Field("steps/s", "Steps (optimizer updates) per second", "no step"),
        "samples": Field("samples", "Samples in all training steps"),
        "steps": Field("steps", "Training steps"),
        "steps_in_detail": Field("steps", "Steps whose records were all kept; splits into stages are means over these"),
        "batch_size": Field("samples", "Mean samples per step and rank", _NO_SIZE),
        "ranks": Field("", "Number of ranks whose samples all_ranks_samples_per_s counts"),
        "all_ranks_samples_per_s": Field("samples/s", "Samples per second of all ranks together", "one rank, or not measured on all"),
        "low": Field(
            "samples/s",
            "Lower end of the 95 % interval of the samples per second of all ranks, as `feedline check` judges them",
            _NO_INTERVAL,
        ),
        "high": Field("samples/s", "Upper end of the same", _NO_INTERVAL),
    },
    **step_fields.FIELDS,
    "Workers": {
        "processes": Field("processes", "How many processes made samples; 0: the main process itself did (num_workers=0)"),
        "busy_share": Field("1", "Share (0 to 1) of the workers' time, first to last batch, spent making batches", "no workers"),
        "idle_share": Field("1", "Share (0 to 1) of that time spent waiting for indices", "no workers"),
        "batches": Field("batches", "Batches made"),
        "samples": Field("samples", "Samples made"),
        "samples_in_detail": Field("samples", "Samples whose operations were timed one by one"),
        "per_sample": Field("", "Stage -> mean cost of one sample; total is the sum of all except transport, which runs in another thread"),
        "operations": Field("", "Single operations inside a sample, the longest first"),
        "fetch_mean_s": Field(
            "s", "Mean time to make one batch; those before the first counted step count only if there are no others", "no batch was made"
        ),
        "fetch_cv": Field("1", "Standard deviation of that time, divided by its mean", "fewer than two batches"),
        "decoded_pixels": Field("pixels", "Pixels decoded per sample", "no decoder was seen"),
        "output_pixels": Field("pixels", "Pixels per sample of the last picture before the tensor", "no picture was seen"),
        "sample_wall_histogram": Field(
            "s, samples",
            "Pairs (upper edge, number of samples between the edge before and this one); estimated in long runs",
        ),
        "blocked_by": Field(
            "1",
            "What the threads that make batches waited for -> share (0 to 1) of their blocked time, sampled from outside: sleep, lock, "
            "network, another process, file, page fault, unknown. Empty: not seen",
        ),
        "blocked_looks": Field(
            "looks", "How often a look at these threads found one blocked while it made a batch; if that is rare, blocked_by is uncertain"
        ),
        "process_cpu_s": Field(
            "s", "CPU time per sample of the whole processes that make samples, helper threads included", "/proc does not show it"
        ),
        "batch_tensors": Field("tensors", "Tensors in a batch as collate made it", "no batch was examined"),
        "without_batches": Field("workers", "Of processes: made no batch, usually because the data has fewer parts than there are workers"),
    },
    "Cost": {
        "wall_s": Field("s", "Wall time per sample; cpu_s + runqueue_s + blocked_s if all three are measured"),
        "cpu_s": Field("s", "CPU time of the thread that made the sample", _NO_DETAIL),
        "runqueue_s": Field("s", "Time runnable but without a CPU", _NO_SCHEDSTAT),
        "blocked_s": Field("s", "The rest: waiting for a disk, the network or a lock, or sleeping", _NO_SCHEDSTAT),
        "bytes": Field(
            "B",
            "Bytes read, decoded, collated or sent, depending on the stage; for total, the bytes that read calls returned",
            "the stage counts none",
        ),
        "error_s": Field(
            "s", "Standard error of wall_s, because only one sample in N is timed (Student's t); 0 if all were", "too few samples to tell"
        ),
    },
    "Operation": {
        "stage": Field("", "The stage it belongs to"),
        "name": Field("", "Its name, e.g. RandomResizedCrop"),
        "wall_s": Field("s", "Wall time per sample"),
        "cpu_s": Field("s", "CPU time per sample", "not measured for this operation"),
        "calls": Field("calls", "Calls per sample"),
    },
    "Loader": {
        "name": Field("", "loader 0, loader 1, ... in the order they were made"),
        "kind": Field("", "Class name"),
        "settings": Field(
            "",
            "num_workers, batch_size, prefetch_factor, in_order, ... as the program set them. made_at: the line that made the loader "
            "(train.py:31; absent if the file's name is masked); made_by: the library that creates it for this line, e.g. transformers",
        ),
        "role": Field("", "training, evaluation, or unused: no model was given its batches"),
        "batches": Field("batches", "Batches handed to the program"),
        "samples": Field("samples", "Samples in them"),
        "batch_bytes": Field("B", "Mean bytes of a batch's tensors", "no tensor was seen in a batch"),
        "flags": Field("", "What its batches are: float32, shared (in shared memory), pinned, objects (no tensors)"),
        "pickle_bytes": Field("B", "Mean bytes pickled to send one batch", "nothing was pickled (num_workers=0)"),
        "first_batch_s": Field("s", "From asking for an iterator to its first batch, mean over epochs", "no epoch delivered a batch"),
        "epochs": Field("epochs", "Epochs that began and delivered at least one batch"),
        "objects": Field("loaders", "Loader objects that were iterated: more than one if the program makes a new one for each epoch"),
    },
    "Gauge": {
        "name": Field("", "Source and quantity, e.g. cpu/used, gpu0/sm"),
        "unit": Field("", "Unit of all its figures; 1 for ratios"),
        "mean": Field("see unit", "Mean over the run"),
        "minimum": Field("see unit", "Smallest value sampled"),
        "maximum": Field("see unit", "Largest value sampled"),
        "at_s": Field("s", "When each value was taken, since recording began; at most 600"),
        "values": Field("see unit", "One value for each time in at_s", "(an element) it could not be read at that time"),
    },
    "Cpus": {
        "allowed": Field("CPUs", "CPUs that the run may use: those of its affinity mask, capped by the quota"),
        "quota": Field("CPUs", "CPU quota of the control group", "it has none, or it cannot be seen"),
        "affinity": Field("CPUs", "CPUs in the affinity mask, which other programs may use as well", "not measured"),
        "own": Field(
            "CPUs", "CPU seconds per second of the training's processes on this machine, of all ranks, with helper threads", _NO_READING
        ),
        "others": Field("CPUs", "CPU seconds per second of other programs on the CPUs of the affinity mask", _NO_READING),
        "free": Field("CPUs", "CPUs that were idle and that the run may use", _NO_READING),
        "ranks": Field("ranks", "Ranks of the run on this machine, which share the CPUs"),
    },
    "Hook": {
        "name": Field("", "What is attached to"),
        "attached": Field("", "Whether it could be attached"),
        "why": Field("", "What it records, or why it could not be attached"),
        "reason": Field(
            "", "Why it could not be attached, as a stable name, e.g. no_gpu; empty if it was attached or the cause has no such name"
        ),
    },
    "Roofline": {
        "samples_per_s": Field("samples/s", "Throughput of the run"),
        "low": Field("samples/s", "Lower end of the 95 % interval of samples_per_s", "too few steps"),
        "high": Field("samples/s", "Upper end of the same", "too few steps"),
        "flop_per_sample": Field("FLOP", "Forward and backward", "not known: flop_source says why"),
        "flop_source": Field("", "How flop_per_sample is known, or why it is not"),
        "peak_flops": Field("FLOP/s", "Peak of the device", "no file of ceilings with one was given"),
        "peak_source": Field("", "Where the peak is from, or why there is none"),
        "mfu": Field(
            "1",
            "FLOP/s of the run, divided by the peak (0 to 1)",
            "one of the two is not known, or the measured peak is too low: peak_source says so",
        ),
        "roofs": Field("", "Limits of the throughput, lowest first"),
        "nearest": Field("", "The binding limit: the lowest one at or above the rate of the run", "none is known"),
        "next": Field("", "The one after it", "none is known"),
        "becomes": Field("samples/s", "Throughput without the binding limit, by the next one", "no next one is known"),
        "says": Field("", "The binding and the next limit in a sentence"),
        "sweep": Field("", "Throughput of the model alone by batch size", "no file of ceilings with a sweep was given"),
        "nearest_id": Field("", "The id of nearest", "none is known"),
        "next_id": Field("", "The id of next", "none is known"),
    },
    "ThroughputBound": {
        "id": Field("", "Stable name, once in a report, e.g. workers, decode, cold_disk"),
        "name": Field("", "What it is called in the figure"),
        "kind": Field(
            "",
            "device, step, gpu (its work for a step), turns (without workers, one process makes a batch and trains on it in turn), "
            "workers, cores, stage, ceiling or loader",
        ),
        "samples_per_s": Field("samples/s", "Highest throughput it allows, at the run's FLOP per sample"),
        "low": Field("samples/s", "Slowest round of its measurement", "not measured in rounds"),
        "high": Field("samples/s", "Fastest round of its measurement", "not measured in rounds"),
        "says": Field("", "What it is made of, with figures"),
        "source": Field("", "this run, or the source of the ceiling"),
        "binds": Field("", "true: it can limit this run; false: it cannot, because it is only one stage of the loader, or another loader"),
    },
    "Sweep": {
        "batch_sizes": Field("samples", "Batch sizes, ascending. All lists have one length"),
        "samples_per_s": Field("samples/s", "Throughput with each"),
        "low": Field("samples/s", "Slowest round"),
        "high": Field("samples/s", "Fastest round"),
        "knee": Field("samples", "The smallest batch size with at least 95 % of the best throughput"),
        "source": Field("", "How it was measured"),
    },
    **rank_fields.FIELDS,
    "Traces": {
        "files": Field("", "The trace file of each rank"),
        "basis": Field("", "Time span that the report's figures cover: steps of the shown rank, or its whole trace if no steps were found"),
        "budget_notes": Field("", "Notes on how to read the budget"),
        "kernels": Field("", "Kernels of the shown rank in its steps by name, the longest first"),
        "operators": Field("", "Operators, ranges and Python functions of its host that began in the steps, most device time first"),
        "copies": Field("", "Copies in the steps by direction and kind of memory"),
    },
    "TraceFile": {
        "rank": Field("", "Its number"),
        "source": Field("", "Name of the file"),
        "maker": Field("", "kineto, nsight, rocprof or xprof (JAX, TensorFlow)"),
        "events": Field("", "How many it holds"),
        "span_s": Field("s", "From its first to its last event"),
        "steps": Field("", "How steps were found in it"),
    },
    "KernelTime": {
        "name": Field("", "Of the kernel"),
        "count": Field("", "How many ran"),
        "total_s": Field("s", "Their durations summed; those that overlap count twice"),
        "busy_share": Field("1", "total_s divided by the time that the device was busy in the steps"),
        "communication": Field("", "true: it moves bytes between ranks"),
        "operator": Field("", "The operator that launched most of it; empty: the trace does not say"),
    },
    "OperatorTime": {
        "name": Field("", "Of the operator, range or function"),
        "kind": Field("", "operator, annotation or python"),
        "count": Field("calls", "Calls"),
        "total_s": Field("s", "Host time, with what they called"),
        "own_s": Field("s", "Host time without what they called"),
        "device_s": Field("s", "Device time of what they and those they called launched"),
        "flop": Field("FLOP", "Of the calls whose cost is known", "none is"),
        "bytes": Field("B", "Operands and results of these", "the trace does not say their types"),
        "flop_per_s": Field("FLOP/s", "flop divided by their device time; by host time without a device", "flop is null"),
        "flop_per_byte": Field("FLOP/B", "Arithmetic intensity", "flop or bytes are null"),
    },
    "CopyTime": {
        "direction": Field("", "HtoD, DtoH, DtoD, PtoP or HtoH; empty: the trace does not say"),
        "memory": Field("", "pageable, pinned or managed; empty: the trace does not say"),
        "count": Field("", "How many"),
        "total_s": Field("s", "Their durations summed"),
        "bytes": Field("B", "Moved by them", "the trace does not say"),
        "gb_per_s": Field("GB/s", "bytes divided by the time of those whose bytes are known, 1 GB = 1e9 B", "bytes is null"),
    },
    **convergence_fields.FIELDS,
    "Finding": {
        "cause": Field("", "The rule's name, stable between versions, e.g. decode_bound"),
        "severity": Field(
            "",
            "Usually by the cost: info below 5 % of a step, low from 5 %, high from 20 % (docs/rules.md has the exceptions, such as a "
            "cause of half the wait or more). Of a mistake in the setup (cost_s null): high: the training is not the one that was intended",
        ),
        "says": Field("", "One sentence with the figures"),
        "evidence": Field("", "What was measured"),
        "fix": Field("", "What to change"),
        "disproof": Field("", "How to check the finding: an experiment, and the outcome that would prove it wrong"),
        "cost_s": Field(
            "s",
            "What the cause costs per step; cost_kind says what that means for the fix's gain",
            "no cost per step is known: a trace has no steps, the finding is about the setup, or it asks for no change",
        ),
        "blame": Field("", "The late rank and its phase", "the finding is not about late ranks"),
        "cost_low_s": Field("s", "Lower end of the 95 % interval of the prediction", "cost_s is not a prediction"),
        "cost_high_s": Field("s", "Its upper end", "cost_s is not a prediction"),
        "settings": Field("", "Arguments of the DataLoader that the fix names -> their new values, e.g. num_workers"),
        "environment": Field("", "Environment variables that the fix names -> their values, with which to start the program"),
        "predicted": Field("", "Throughput predicted with the fix, by a replay of the loader or of the ranks", "refused says why not"),
        "refused": Field("", "Why the fix is not predicted, and which measurement would settle it; empty if it is predicted"),
        "claims": Field("", "Rows of the ledger whose time it explains; those of a sample begin with sample/"),
        "cost_kind": Field(
            "",
            "What cost_s says of the gain. predicted: a replay saves it, cost_low_s to cost_high_s. estimated: the time of the cause; "
            "the gain can be more or less (docs/rules.md). at_least: estimated, and probably more, because the CPUs are full and the fix "
            "also leaves CPU time to the step. bound: no fix of this cause saves more. unknown: no time is known",
        ),
    },
    "PredictedRate": {
        "from": Field("samples/s", "Throughput of all ranks as recorded"),
        "to": Field("samples/s", "The same with the fix"),
        "low": Field("samples/s", "Lower end of the 95 % interval of to"),
        "high": Field("samples/s", "Its upper end"),
    },
    "Blame": {
        "rank": Field("", "The late rank", "it changes from step to step"),
        "phase": Field("", "What takes it longer: wait (for its loader), copy, forward, backward, optimizer, other, or a user's stage"),
        "part": Field("", "The stage of a sample that takes longer: read, decode, augment, ...", "phase is not wait, or not measured"),
    },
    "Evidence": {
        "id": Field("", "What was measured, as a name that is stable between versions, e.g. decode_share"),
        "what": Field("", "The same in words"),
        "value": Field("see unit", "The figure"),
        "unit": Field("", "s, B, samples/s and so on; share for shares from 0 to 1, 1 for other ratios"),
        "of": Field("", "Which one, if a finding has several with the same id: a rank, an operation, the lower or upper end; else empty"),
    },
}
