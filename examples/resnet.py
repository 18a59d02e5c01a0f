"""ResNet-50 in three quarters of the memory: plan, train, and see that the budget holds.

    python examples/resnet.py
"""

import remat
import torch
from torch import nn
from torchvision.models import resnet50


class Classifier(nn.Module):
    """The model with its loss: then the plan sees the whole step."""

    def __init__(self) -> None:
        super().__init__()
        self.model = resnet50(num_classes=100)

    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(self.model(images), labels)


def main() -> None:
    torch.manual_seed(0)
    model = Classifier()
    batch = torch.randn(16, 3, 64, 64), torch.randint(0, 100, (16,))

    plan = remat.plan(model, batch, budget="75%")
    print(plan)
    print(plan.explain())

    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    step = remat.compile(model, budget=plan.planned.budget)
    for i in range(3):
        with remat.measure_peak() as peak:
            loss = step(*batch)
            loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        print(f"step {i}: loss {loss.item():.4f}, peak {peak.bytes / 2**20:.1f} of {plan.planned.budget / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
