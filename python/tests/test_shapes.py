"""Batches of many lengths: nothing is refused that fits, and a short batch does not pay for a long one."""

from __future__ import annotations

import remat
import torch
from remat.measure import measure_peak
from remat.sharing import MAX_PLANS
from test_guard import WIDTH, Loss

LENGTHS = (200, 16, 90, 128, 40, 150, 24, 64, 175, 110)


def test_ten_lengths_in_a_loop() -> None:
    torch.manual_seed(0)
    module = Loss()
    batches = {n: torch.randn(n, WIDTH) for n in LENGTHS}
    # The longest batch fits exactly; the top of its bucket, 256, would not.
    budget = remat.plan(module, batches[200], effort=0.01).floor
    assert remat.plan(module, torch.randn(256, WIDTH), effort=0.01).floor > budget
    keep_all = {n: remat.plan(module, batches[n], effort=0.01).keep_all_peak for n in (16, 24)}
    assert max(keep_all.values()) < budget
    expected = {}
    for n, x in batches.items():
        module.zero_grad(set_to_none=True)
        module(x).backward()
        expected[n] = [p.grad.clone() for p in module.parameters()]
    remat.compile(module, budget=budget, dynamic=True, effort=0.01)
    before = len(remat.regions())
    for round_ in range(2):
        for n, x in batches.items():
            module.zero_grad(set_to_none=True)
            with measure_peak("cpu") as peak:
                module(x).backward()
            assert peak.bytes <= budget
            assert all(torch.equal(a, p.grad) for a, p in zip(expected[n], module.parameters(), strict=True))
            if round_ and n in keep_all:
                # Nothing is recomputed for a batch that fits as it is.
                assert peak.bytes == keep_all[n]
    planned = remat.regions()[before:]
    # Lengths of one bucket share a plan; what was forgotten for others is planned again.
    assert len({report.graph_hash for report in planned}) <= len(LENGTHS)
    assert len(module._compiled_call_impl.session.plans) <= MAX_PLANS
