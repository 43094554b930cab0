"""What the fields of report.json's ``ranks`` and ``comm`` mean."""

from report_docs.field import Field

_UNTOLD = "no end was seen, a rank of its group left no records, or clocks cannot be compared"
_RECORDED = "feedline recorded the run itself"
_NO_PARTS = "no step of this rank counts"
_UNMET = "none of its collectives can be compared with another rank's: its transfer then includes the waiting"
_REASON = "`reasons` says why"

FIELDS: dict[str, dict[str, Field]] = {
    "RankSummary": {
        "steps": Field("steps", "Its steps: those recorded in full and those only counted"),
        "mean_s": Field("s", "Mean time of a step", "the rank made no step"),
        "stages": Field("s", "Stage -> mean seconds per step; they sum to mean_s. From traces: those of the budget, see traces.md"),
        "state": Field("", "As in RunInfo"),
        "comm": Field(
            "",
            "Its mean step, split into computing, transfer and waiting",
            "the report's comm is null, or this rank was left out of the comparison",
        ),
        "gpu": Field("", "Its device in the trace", _RECORDED),
        "input": Field("", "Its waits for batches in the trace", _RECORDED),
        "budget": Field("", "What its steps' time went to -> share of it, 0 to 1; they sum to 1", _RECORDED),
    },
    "RankParts": {
        "compute_s": Field("s", "Everything else: what is neither transfer nor waiting", _NO_PARTS),
        "hidden_transfer_s": Field(
            "s", "Per step: time in which bytes moved, hidden behind the rank's own backward pass (docs/rules.md, Hidden)", _NO_PARTS
        ),
        "exposed_transfer_s": Field("s", "Per step: time in which bytes moved, not hidden", _NO_PARTS),
        "hidden_wait_s": Field("s", "Per step: waiting for another rank, hidden behind the rank's own backward pass", _UNMET),
        "exposed_wait_s": Field("s", "Per step: waiting for another rank, not hidden", _UNMET),
        "queue_s": Field("s", "Per step: collectives queued behind one that waited", _UNMET),
    },
    "RankGpu": {
        "span_s": Field("s", "The steps; without any, the whole trace", _REASON),
        "idle_pct": Field("%", "Of the span: nothing ran", _REASON),
        "compute_pct": Field("%", "Of the span: a kernel ran that is not communication", _REASON),
        "other_pct": Field("%", "Of the span: something ran, but no such kernel", _REASON),
        "overlap_pct_of_comm": Field("%", "Of all communication: a kernel computed at the same time", _REASON),
        "exposed_comm_s": Field("s", "Communication while no kernel computed", _REASON),
        "exposed_comm_pct": Field("%", "The same, of the span", _REASON),
        "reasons": Field("", "Field -> why it is null"),
    },
    "RankInput": {
        "loader_pct": Field("%", "Of the steps: the main thread waited for a batch", _REASON),
        "stall_pct": Field("%", "Of the steps: it did, and the device had no work", _REASON),
        "speedup_ceiling": Field("", "How many times as fast the steps would be if batches were always ready", _REASON),
        "reasons": Field("", "Field -> why it is null"),
    },
    "CollectiveKind": {
        "name": Field("", "Operation: all_reduce, reduce_scatter, all_gather, ..., send_recv (a message of one rank to another)"),
        "bytes": Field("B", "The full message; the larger side of all_gather and reduce_scatter"),
        "n": Field("ranks", "Size of its group"),
        "backend": Field("", "gloo, nccl, ..."),
        "count": Field("", "How many, each counted once for all ranks"),
        "transfer_s": Field("s", "Median time in which its bytes moved, without waiting for ranks", _UNTOLD),
        "algbw_gbps": Field(
            "GB/s",
            "bytes divided by the mean time in which they moved, on the rank where it is longest; 1 GB = 1e9 B",
            "as transfer_s, or no bytes",
        ),
        "busbw_gbps": Field("GB/s", "algbw_gbps times the factor of the operation and n (nccl-tests, PERFORMANCE.md)", "as algbw_gbps"),
    },
    "LateRank": {
        "rank": Field("", "Its number"),
        "steps": Field("steps", "Steps in which it was the late rank"),
        "late_steps": Field("steps", "Steps in which any rank was late by more than the clocks' error"),
        "all_steps": Field("steps", "Steps examined"),
        "late_s": Field("s", "How much later than the median of the others it began, mean over its late steps"),
        "waited_s": Field("s", "How long each other rank waited for it, mean over its late steps"),
        "phase": Field("", "What took it longer: wait (for its loader), copy, forward, backward, optimizer, other, or a user's stage"),
        "excess_s": Field("s", "How much longer that took than on the median of the others, mean over its late steps"),
        "part": Field("", "The stage of a sample that takes longer there", "phase is not wait, or samples were not measured on two ranks"),
        "cost_s": Field("s", "How much shorter the mean step would be if this rank were as fast as the median of the others", "no replay"),
        "persistent": Field(
            "", "true: the same rank again and again; false: it changes from step to step, or there are too few steps to tell"
        ),
        "whole_host": Field("", "true: all ranks of its host are late, and no others"),
    },
    "Prediction": {
        "id": Field("", "Stable name of what is different. The first, as_it_was, is the run itself, replayed"),
        "value": Field(
            "",
            "The rank that is on time (rank_on_time), how many times as fast the link is (faster_link), the buckets' MiB (bucket_size), or "
            "batches per update (accumulation)",
            "the id says everything",
        ),
        "what": Field("", "`id` and `value` in words"),
        "step_s": Field("s", "Mean step with the change", "refused; the reason is in `why`"),
        "low": Field("s", "Lower end of its 95 % interval", "refused"),
        "high": Field("s", "Upper end", "refused"),
        "gain_s": Field("s", "The measured mean step less step_s; 0 if refused"),
        "why": Field("", "Why it was refused; empty otherwise"),
    },
    "Communication": {
        "collectives": Field("", "By operation, message and group, most bytes first; at most 20"),
        "clock_bound_s": Field(
            "s", "Clock error between ranks; smaller differences are not significant", "the ranks' clocks cannot be compared"
        ),
        "clocks": Field("", "How ranks were aligned: measured, collective ends, or none"),
        "late": Field("", "Ranks that others waited for, most costly first; at most 8"),
        "network": Field("", "The bandwidth compared with the expected one, in a sentence"),
        "network_share": Field(
            "1",
            "Bus bandwidth of the largest collectives, divided by that of the link or the probe",
            "neither is known, or no transfer_s is",
        ),
        "what_if": Field("", "Replays of the bucket timeline"),
        "nccl": Field("", "What the given NCCL_DEBUG output says, in sentences"),
        "unseen": Field("", "Whose collectives are missing, and why; notes say what share of the step no stage explains"),
        "exposed": Field("", "Rank number (as text) -> its exposed_transfer_s (ranks) by operation and phase, most first"),
    },
    "ExposedKind": {
        "name": Field("", "Operation: all_reduce, all_gather, ..."),
        "phase": Field("", "Phase of the step in which the collective was called: forward, backward, optimizer, loader, init or other"),
        "transfer_s": Field(
            "s",
            "Mean time per step in which it moved bytes, not hidden behind a backward pass, shared evenly among collectives that move at "
            "the same time",
        ),
    },
}
