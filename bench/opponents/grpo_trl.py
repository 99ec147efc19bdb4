"""Seconds of one GRPO step of TRL's GRPOTrainer on the CPU: 4 prompts, 8
completions each, 64 tokens, fp32 (or as the options say), with its default
gradient checkpointing."""

import os
import sys
import tempfile
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch
from common import SEED, THREADS, arguments, emit, ready
from datasets import Dataset
from transformers import (AutoModelForCausalLM, AutoTokenizer,
                          TrainerCallback)
from trl import GRPOConfig, GRPOTrainer


def reward(completions, **_):
    """Share of the letter e: cheap, and different between samples."""
    return [text.count("e") / max(1, len(text)) for text in completions]


class Ended(Exception):
    """Nobody wants another step."""


class Clock(TrainerCallback):
    """Says what each step took; with --turns, waits until one is asked for."""

    def __init__(self, turns, say):
        self.turns, self.say = turns, say
        self.case = self.start = None

    def on_train_begin(self, *_args, **_kwargs):
        if self.turns:
            ready("trl", "transformers", "torch")

    def on_step_begin(self, *_args, **_kwargs):
        if self.turns:
            self.case = sys.stdin.readline().strip()
            if not self.case:
                raise Ended
        self.start = time.perf_counter()

    def on_step_end(self, *_args, **_kwargs):
        self.say(self.case, time.perf_counter() - self.start)


def main():
    args = arguments(__doc__, beta=0.04, checkpointing=1, prompts=4,
                     samples=8, tokens=64)
    torch.set_num_threads(THREADS)
    case = f"fp32/{args.prompts}x{args.samples}x{args.tokens}/" \
        f"kl={args.beta:g}"
    seconds = []

    def say(wanted, taken):
        seconds.append(taken)
        if args.turns:
            emit("grpo_step", wanted, "trl", [taken], "s")

    clock = Clock(args.turns, say)
    steps = 1000 if args.turns else args.runs + 1  # the first one warms up
    tok = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(args.model,
                                                 dtype=torch.float32)
    if args.beta > 0:  # TRL loads the reference model from this path
        model.config._name_or_path = args.model
    data = Dataset.from_dict({"prompt": [
        f"Tell me about the number {i} and its properties, in short."
        for i in range(args.prompts * steps)]})
    with tempfile.TemporaryDirectory() as out:
        config = GRPOConfig(
            output_dir=out, use_cpu=True, bf16=False, fp16=False,
            report_to="none",
            per_device_train_batch_size=args.prompts * args.samples,
            gradient_accumulation_steps=1, num_generations=args.samples,
            max_completion_length=args.tokens, temperature=1.0, beta=args.beta,
            learning_rate=1e-6, max_steps=steps, logging_steps=steps,
            save_strategy="no", seed=SEED, disable_tqdm=True,
            gradient_checkpointing=bool(args.checkpointing),
            generation_kwargs={"min_new_tokens": args.tokens},
            dataloader_pin_memory=False)
        trainer = GRPOTrainer(
            model=model, reward_funcs=reward, args=config, train_dataset=data,
            processing_class=tok, callbacks=[clock])
        try:
            trainer.train()
        except Ended:
            return
    emit("grpo_step", case, "trl", seconds[1:], "s",
         checkpointing=bool(args.checkpointing))


if __name__ == "__main__":
    main()
