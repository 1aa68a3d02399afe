"""Generators of inputs, all behind one interface, and what their inputs kill."""
