"""transformers.Trainer with a tiny BERT of its own and callbacks."""

import tempfile

import torch
import transformers
from tiny import digest

transformers.logging.set_verbosity_error()
config = transformers.BertConfig(
    vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
)
net = transformers.BertForSequenceClassification(config)
data = [{"input_ids": torch.arange(5) + n, "labels": n % 2} for n in range(12)]


class Told(transformers.TrainerCallback):
    def on_step_end(self, arguments, state, control, **_):
        print("step", state.global_step)


with tempfile.TemporaryDirectory() as folder:
    settings = transformers.TrainingArguments(
        folder,
        max_steps=5,
        per_device_train_batch_size=2,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = transformers.Trainer(net, settings, train_dataset=data, callbacks=[Told()])
    trainer.remove_callback(transformers.PrinterCallback)  # prints how long it took
    trainer.train()
digest(net)
