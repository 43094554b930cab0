"""What the fields of the mean step in report.json mean: the dataclasses of analysis/measure/model.py."""

from report_docs.field import Field

_NO_SCHEDSTAT = "the kernel does not report it (no schedstat)"
_NO_LOOKS = "too few steps were observed, or the program has a trace or profile function of its own"
_NO_INPUT = "no loader was seen, or only the program's own threads read from it; or the figures come from a trace"

FIELDS: dict[str, dict[str, Field]] = {
    "StepSummary": {
        "mean_s": Field("s", "Mean wall time of a step"),
        "median_s": Field("s", "Median wall time of a step"),
        "p95_s": Field("s", "95 % of the steps took at most this long"),
        "stages": Field("s", "Stage -> mean time per step, in the order they happen; they sum to mean_s. other: outside all stages"),
        "waits": Field("s", "Why the main process waited -> mean time per step; they sum to stages.wait"),
        "boundary": Field(
            "",
            "What cut the run into steps: optimizer, backward or loader; in traces profiler_step, feedline, range, optimizer, "
            "collectives or none",
        ),
        "evaluation_s": Field("s", "Time in loops that only infer (evaluation, rollouts) over the whole run, outside all steps"),
        "series": Field("", "Step by step over the run"),
        "gpu_stages": Field(
            "s",
            "Stage -> mean time per step from the GPU's start of the stage's work to its end, gaps included. Stages may overlap",
            "no GPU was timed: the hook CUDA events says why",
        ),
        "flop": Field("", "Floating-point operations of one step", "they were not counted: the hook FLOP says why"),
        "cpu_s": Field("s", "CPU time per step of the training process and all it started, threads included", "fewer than three readings"),
        "runqueue_s": Field(
            "s", "Time per step during which the main thread could run but had no CPU, in forward and backward", _NO_SCHEDSTAT
        ),
        "sampled": Field("", "How the stages were estimated if steps were so short that most were only counted", "every step was recorded"),
        "main_runqueue_share": Field(
            "1",
            "Share (0 to 1) of the step in which the main thread could run but had no CPU, in loading, forward and backward",
            _NO_SCHEDSTAT,
        ),
        "input_share": Field(
            "1", "Share (0 to 1) of the step that its input takes. The start of a loader that starts only once is excluded", _NO_INPUT
        ),
        "input_share_low": Field("1", "Lower end of its 95 % interval (Student's t over the steps, or bootstrap over windows)", _NO_INPUT),
        "input_share_high": Field("1", "Upper end", _NO_INPUT),
        "own_code": Field(
            "",
            "The program's own code in the step: what the stage other, and loss between a forward and its backward, are spent on",
            _NO_LOOKS,
        ),
        "evaluation_code": Field("", "The same of evaluations and rollouts, over the whole run", _NO_LOOKS),
        "gpu_work": Field(
            "",
            "What the GPU did per step, in the steps that torch.profiler recorded",
            "torch.profiler recorded no steps of this training, or did not see the work of exactly one GPU",
        ),
    },
    "Ledger": {
        "step": Field("", "The mean step; of a trace without steps, all of it"),
        "run": Field("", "The whole run, from the begin of the recording to its end", "one of these is unknown"),
        "sample": Field("", "The mean sample, as the process that makes it spends the time", "no sample was recorded"),
    },
    "LedgerTable": {
        "of": Field("", "step or sample (the mean one), run, or trace (all of one without steps)"),
        "whole_s": Field("s", "What the rows sum to, within 0.1 %"),
        "rows": Field("", "Disjoint parts of it, the largest first"),
    },
    "LedgerRow": {
        "where": Field(
            "",
            "Path from the stage down to what it hides, such as wait/starved or other/user/validate. Of a run, the first part is start, "
            "steps, evaluation, profiled (steps that torch.profiler recorded), between (steps) or end, and the stage follows. Of a sample, "
            "cpu, run_queue (waiting for a CPU) and blocked are below each stage. Of traces, rows are the parts of the budget",
        ),
        "s": Field("s", "What it takes of the table's whole"),
        "steps": Field("1", "Share (0 to 1) of the recorded steps in which it occurs", "unknown, or the row is of a run"),
        "trend": Field("1", "Its mean in the last third of the recorded steps over that in the first", "the steps are fewer than 15"),
        "place": Field("", "File and line; empty: unknown"),
    },
    "OwnCode": {
        "s": Field("s", "All of this code: per step, or of evaluations and rollouts in total"),
        "looks": Field(
            "looks",
            "Stretches of this code that were observed, chosen at random: each lasts from one call of a model, backward or optimizer to "
            "the next",
        ),
        "functions": Field("", "What the training loop calls, and lines of the loop itself, longest first. They add up to at most s"),
    },
    "OwnFunction": {
        "name": Field("", "The function with its file and first line, or lines of the loop with their file"),
        "s": Field("s", "What it takes of s, with everything that it calls there"),
        "low_s": Field("s", "Lower end of its 95 % interval (Student's t over the steps that were looked at)"),
        "high_s": Field("s", "Upper end"),
        "mainly": Field("", "A function called in it that takes at least half of its time; empty if none is known"),
    },
    "GpuWork": {
        "busy_s": Field("s", "Time per step during which a kernel, a copy or a fill ran"),
        "kernels": Field("kernels", "Kernels per step"),
        "kernel_s": Field("s", "Mean duration of a kernel"),
        "steps": Field("steps", "Steps that were recorded by torch.profiler"),
        "ranks": Field("ranks", "Ranks of the training; with several, the GPU is also busy waiting for the others"),
        "float32_products_s": Field("s", "Time per step during which a matrix product of float32 ran that uses no tensor cores"),
        "device": Field("", "Name of the GPU; empty if torch.profiler did not record it"),
    },
    "Sampled": {
        "counted": Field("steps", "Steps that were only counted and timed"),
        "recorded": Field("steps", "Steps recorded in full, from which the stages are estimated"),
        "windows": Field("windows", "Runs of consecutive steps that these belong to"),
        "share_low": Field("1", "Stage -> lower end of the 95 % interval of its share of such a step (bootstrap over the windows)"),
        "share_high": Field("1", "Stage -> upper end"),
        "recording_s": Field("s", "Extra time that recording a step in full takes; subtracted from all figures"),
    },
    "Flop": {
        "forward": Field("FLOP", "Of all forwards in training mode, as torch.utils.flop_counter counts"),
        "backward": Field("FLOP", "Of all backwards"),
        "samples": Field("samples", "In that step"),
        "computed_in": Field(
            "", "float32, tf32, float16 or bfloat16: the fastest in which a tenth of them or more are computed; empty: unknown"
        ),
    },
    "StepSeries": {
        "start_s": Field("s", "Start of the column's first step, since the first step's start. All lists have one length, at most 600"),
        "steps": Field("steps", "How many steps the column represents"),
        "wall_min_s": Field("s", "Shortest step in the column"),
        "wall_s": Field("s", "Median step in the column"),
        "wall_max_s": Field("s", "Longest step in the column"),
        "stages": Field(
            "s", "Stage -> mean time per step in the column. samples: making samples in the main process, which step.stages splits further"
        ),
    },
}
