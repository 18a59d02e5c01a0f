"""Data-parallel training: every rank runs the same plan.

    torchrun --nproc-per-node 2 examples/ddp.py

The model is compiled before it is wrapped, so that the plan sees the whole step; the gradients are reduced when backward ends.
"""

import remat
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    layers = [layer for _ in range(8) for layer in (nn.Linear(256, 256), nn.GELU(), nn.Dropout(0.1))]
    model = nn.Sequential(*layers, nn.Linear(256, 1))
    parallel = DistributedDataParallel(remat.compile(model, budget="90%"))
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.01)
    torch.manual_seed(1 + dist.get_rank())
    for i in range(3):
        loss = parallel(torch.randn(512, 256)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        print(f"rank {dist.get_rank()} step {i}: loss {loss.item():.4f}, plan {remat.regions()[-1].plan_hash[:12]}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
