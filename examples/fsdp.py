"""Fully sharded training (FSDP2): parameters are sharded over the ranks, each block is planned within the budget.

    torchrun --nproc-per-node 2 examples/fsdp.py

Each block is compiled by itself, as is usual with FSDP2: its parameters are gathered before it runs and freed after it. The budget
then holds for one block at a time, and what other blocks hold is named as `reserved`.
"""

import remat
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard


class Block(nn.Module):
    """Six layers with dropout and a residual."""

    def __init__(self, width: int) -> None:
        super().__init__()
        layers = [layer for _ in range(6) for layer in (nn.Linear(width, width), nn.GELU(), nn.Dropout(0.1))]
        self.layers = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.layers(x)


def main() -> None:
    dist.init_process_group("gloo")
    mesh = dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(0)
    model = nn.Sequential(*(Block(128) for _ in range(4)), nn.Linear(128, 1))
    for block in model:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    for block in model[:-1]:
        block.compile(backend="remat", options={"budget": "90%"})
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    torch.manual_seed(1 + dist.get_rank())
    for i in range(3):
        loss = model(torch.randn(256, 128)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        print(f"rank {dist.get_rank()} step {i}: loss {loss.item():.4f}, {len(remat.regions())} regions")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
