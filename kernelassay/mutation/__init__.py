"""Mutation of kernel sources: the syntax tree, the rules by family, the engine."""

from kernelassay.mutation.catalogue import RULES, select
from kernelassay.mutation.engine import (
    Mutant,
    MutantSet,
    apply,
    diff,
    mutant_id,
    mutant_text,
    mutants,
)
from kernelassay.mutation.language import LANGUAGES, rules_of
from kernelassay.mutation.rule import FAMILIES, Edit, Example, Mutation, Rule
from kernelassay.mutation.tree import KernelTree, LaunchSite, Parameter

__all__ = [
    "FAMILIES",
    "LANGUAGES",
    "RULES",
    "Edit",
    "Example",
    "KernelTree",
    "LaunchSite",
    "Mutant",
    "MutantSet",
    "Mutation",
    "Parameter",
    "Rule",
    "apply",
    "diff",
    "mutant_id",
    "mutant_text",
    "mutants",
    "rules_of",
    "select",
]
