"""Adds up the ranks' numbers, as a user of PyTorch would: nothing is set but what torchrun sets."""
import torch
import torch.distributed as dist

dist.init_process_group(backend="ropewalk")
rank, size = dist.get_rank(), dist.get_world_size()
values = torch.full((1 << 16,), rank + 1.0)
dist.all_reduce(values)
assert torch.all(values == size * (size + 1) / 2), values
print(f"rank {rank} of {size}: sum {values[0].item():.0f}", flush=True)
dist.destroy_process_group()
