"""Mutation of kernel sources: the syntax tree, the rules by family, the engine."""
