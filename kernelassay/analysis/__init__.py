"""Scores and their reasons, computed from a kill matrix."""
