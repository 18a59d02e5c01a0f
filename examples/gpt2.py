"""GPT-2 of Hugging Face, built from its config: what each budget costs, and the largest batch for a budget.

    python examples/gpt2.py
"""

import remat
import torch
from transformers import GPT2Config, GPT2LMHeadModel


def batch(size: int) -> dict[str, torch.Tensor]:
    ids = torch.randint(0, 1000, (size, 64))
    return {"input_ids": ids, "labels": ids}


def main() -> None:
    torch.manual_seed(0)
    config = GPT2Config(n_layer=2, n_embd=128, n_head=4, vocab_size=1000, n_positions=64, use_cache=False)
    model = GPT2LMHeadModel(config).train()

    plan = remat.plan(model, batch(8))
    print(plan)
    for point in plan.frontier(5):
        cost = "does not fit" if point["cost"] is None else f"{1e3 * point['cost']:.1f} ms"
        print(f"  {point['budget_bytes'] / 2**20:8.1f} MiB  {cost}")

    budget = int(0.6 * plan.keep_all_peak)
    print("largest batch:", remat.max_batch(model, batch, budget=budget, start=8))

    # The name works because installing the package registers it.
    step = torch.compile(model, backend="remat", options={"budget": budget, "verify": True})
    for i in range(3):
        loss = step(**batch(8)).loss
        loss.backward()
        model.zero_grad(set_to_none=True)
        print(f"step {i}: loss {loss.item():.4f}")
    print(remat.regions()[-1])


if __name__ == "__main__":
    main()
