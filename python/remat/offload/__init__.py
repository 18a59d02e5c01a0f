"""Memory that is somewhere else: values rest in host memory or in a file while nobody needs them.

- `space`: where bytes rest, and how they get there: memory outside of the budget, or a file without a name.
- `channel`: copies in another thread, one after the other.
- `store`: the interface of a store, and its form for the CPU. `streams`: the form for CUDA.
- `places`: one store for each place and device of a process.
- `steps`: the functions that emitted graphs call.
- `speed`: what a copy takes, measured beside running work.
- `moments`: the state of an optimizer, in a store between its steps.

What a step of a plan means is fixed in docs/formats.md: readers wait for a copy, `free` and `discard` wait for its end.
"""
