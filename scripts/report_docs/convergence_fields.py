"""What the fields of report.json's ``convergence`` mean."""

from report_docs.field import Field

FIELDS: dict[str, dict[str, Field]] = {
    "ConvergenceSummary": {
        "curves": Field("", "Numbers over the course of the training: train loss, eval loss, lr, then those passed to feedline.metric"),
        "noise": Field("", "The gradient noise scale over the training"),
        "price": Field("", "What the batch costs in samples and saves in updates", "samples per update are not known"),
        "workers": Field("", "Always empty: `feedline converge advise --target` predicts the time by number of ranks, from several runs"),
        "checks": Field("", "Mistakes in the setup of the training, most severe first; those of severity high are also among the findings"),
        "samples": Field(
            "", "Samples trained on, all ranks together", "no loader feeds the training, or none that reports how many samples it delivers"
        ),
        "samples_per_epoch": Field(
            "", "Samples in an epoch, all ranks together", "the loader has no len(), or more than one loader feeds the training"
        ),
        "updates": Field("", "Optimizer updates in all"),
        "fixes": Field("", "Value of the run's --fix option; empty without one"),
        "notes": Field("", "What a reader should know about these figures"),
    },
    "CurvePoints": {
        "name": Field("", "train loss, eval loss, lr, or the name passed to feedline.metric"),
        "updates": Field("", "Per point: optimizer updates made before; at most 200 points"),
        "samples": Field(
            "", "Per point: samples that all ranks together had trained on; if convergence.samples is null, rows of the models' input"
        ),
        "at_s": Field("s", "Per point: since the first update"),
        "values": Field("", "Per point: mean over the values that it stands for"),
        "not_finite": Field("", "Values left out because they were NaN or infinite"),
        "final": Field(
            "", "Value at its end: of train loss the mean over the last tenth of the samples, of others the last", "none is finite"
        ),
    },
    "NoiseOverTraining": {
        "value": Field("samples", "Noise scale of the whole training: the windows weighted by the progress made in them", "why says why"),
        "low": Field("samples", "Lower end of its range over the windows; if value is null, a lower bound", "not known"),
        "high": Field("samples", "Upper end of its range over the windows; if value is null, an upper bound", "not known"),
        "why": Field("", "Why the value is missing; empty if it is not"),
        "how": Field("", "How gradients were seen: ddp, hook, manual, accumulation or fsdp2; empty: not at all"),
        "windows": Field("", "Parts of the training, in their order"),
        "dropped": Field("", "Updates left out: not finite, of unknown size, or their part was as large as the whole"),
        "reason": Field("", "Why the value is missing, as a stable name: one_gradient; empty where no code depends on it"),
    },
    "NoiseWindow": {
        "samples": Field("", "Samples trained on by the middle of the window, all ranks together"),
        "updates": Field("", "Updates measured in it"),
        "value": Field("samples", "The noise scale", "why says why"),
        "low": Field("samples", "Lower end of the 95 % interval; without a value: it is at least this", "not known"),
        "high": Field("samples", "Upper end of the 95 % interval; without a value: it is at most this", "not known"),
        "why": Field("", "Why the value is missing; empty if it is not"),
    },
    "BatchPrice": {
        "batch": Field("samples", "Samples per update, all ranks together"),
        "where": Field("", "Against the critical batch: far above, above, near, below, far below or unknown"),
        "samples_factor": Field("1", "E/Emin: samples needed to reach a loss, over the fewest possible", "the noise scale is not known"),
        "samples_low": Field("1", "The same at the upper end of the noise scale's range", "that end is not known"),
        "samples_high": Field("1", "The same at the lower end of the noise scale's range", "that end is not known"),
        "updates_factor": Field("1", "S/Smin: updates needed to reach a loss, over the fewest possible", "the noise scale is not known"),
        "updates_low": Field("1", "The same at the lower end of the noise scale's range", "that end is not known"),
        "updates_high": Field("1", "The same at the upper end of the noise scale's range", "that end is not known"),
        "says": Field("", "All of it in a sentence"),
    },
    "TimeToTarget": {
        "workers": Field("", "Processes"),
        "batch": Field("samples", "Samples per update, all ranks together"),
        "updates": Field("", "Updates to the target", "why says why"),
        "updates_low": Field("", "The same, from the noise scale's range", "as updates"),
        "updates_high": Field("", "The same, from the noise scale's range", "as updates"),
        "time_s": Field("s", "Updates times the time of one", "why says why"),
        "low_s": Field("s", "Lower end of its band", "as time_s"),
        "high_s": Field("s", "Upper end of its band", "as time_s"),
        "source": Field("", "Of the step time: measured, or the scaling law that predicts it"),
        "why": Field("", "Why something is unknown; empty otherwise"),
    },
}
