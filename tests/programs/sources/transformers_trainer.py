"""A small GPT-2, never trained before, under the transformers Trainer: accumulation over two batches, evaluation each epoch."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class Sentences(torch.utils.data.Dataset):
    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        self.tokens = torch.randint(0, 64, (count, 16), generator=generator)

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        return {"input_ids": self.tokens[index], "labels": self.tokens[index]}


if __name__ == "__main__":
    arguments = TrainingArguments(
        output_dir="out",
        use_cpu=True,
        num_train_epochs=2,
        per_device_train_batch_size=4,
        per_device_eval_batch_size=4,
        gradient_accumulation_steps=2,
        eval_strategy="epoch",
        save_strategy="no",
        logging_steps=1,
        dataloader_num_workers=2,
        disable_tqdm=True,
        report_to="none",
        seed=1,
    )
    torch.manual_seed(1)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=16, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0))
    trainer = Trainer(model, arguments, train_dataset=Sentences(24, 0), eval_dataset=Sentences(8, 1))
    trainer.train()
    print("updates", trainer.state.global_step)
