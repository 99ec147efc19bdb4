"""GRPO of TRL with a vLLM server that gets its weights through DynaTrain.
usage: example.py MODEL SERVER-URL

The server: VLLM_SERVER_DEV_MODE=1 vllm serve MODEL
    --weight-transfer-config '{"backend": "dynatrain"}' --logprobs-mode processed_logprobs
"""

import sys

try:
    import trl
    import vllm  # noqa: F401
    from datasets import Dataset
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

import dynatrain.trl


def reward(completions, **columns):
    """Short answers are good ones."""
    return [-len(text) / 100 for text in completions]


def main():
    model, url = sys.argv[1:3]
    dynatrain.trl.prepare()  # no NCCL: before the trainer is made
    trainer = trl.GRPOTrainer(
        model=model, reward_funcs=reward,
        train_dataset=Dataset.from_dict(
            {"prompt": ["2 + 2 =", "The sky is"] * 8}),
        args=trl.GRPOConfig(
            output_dir="runs/trl-example", use_vllm=True, vllm_mode="server",
            vllm_server_base_url=url, max_steps=2, num_generations=2,
            per_device_train_batch_size=2, max_completion_length=8,
            learning_rate=1e-5, logging_steps=1, report_to=[], use_cpu=True,
            bf16=False, model_init_kwargs={"dtype": "float32"}))
    sync = dynatrain.trl.attach(trainer)
    try:
        trainer.train()
        print("versions:", sync.trainer.version, sync.servers.versions())
    finally:
        sync.close()


if __name__ == "__main__":
    main()
