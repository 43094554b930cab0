"""A GPT-2 of four layers under the transformers Trainer, in bfloat16 autocast, two batches per
update.

Knows nothing of feedline. Prints JSON.
"""

import hashlib
import json
import os
import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

LENGTH = 128


class Tokens(torch.utils.data.Dataset):
    """Sentences of random tokens, each the same every time."""

    def __len__(self):
        return 960

    def __getitem__(self, index):
        tokens = torch.randint(0, 1000, (LENGTH,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": tokens, "labels": tokens}


def main():
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # as torch's notes on reproducibility ask
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(1)
    shape = GPT2Config(
        vocab_size=1000,
        n_positions=LENGTH,
        n_embd=256,
        n_layer=4,
        n_head=4,
        bos_token_id=0,
        eos_token_id=0,
    )
    shape._attn_implementation = "eager"
    model = GPT2LMHeadModel(shape)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            num_train_epochs=2,
            per_device_train_batch_size=16,
            gradient_accumulation_steps=2,
            bf16=torch.cuda.is_available(),
            save_strategy="no",
            logging_steps=20,
            dataloader_num_workers=2,
            disable_tqdm=True,
            report_to="none",
            seed=1,
        )
        trainer = Trainer(model, arguments, train_dataset=Tokens())
        trainer.train()
    digest = hashlib.sha256(
        b"".join(parameter.detach().cpu().numpy().tobytes() for parameter in model.parameters())
    ).hexdigest()
    print(json.dumps({"digest": digest, "updates": trainer.state.global_step}))


if __name__ == "__main__":
    main()
