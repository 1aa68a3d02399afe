"""New inputs for problems: generators of inputs, and suites chosen from what was measured."""
