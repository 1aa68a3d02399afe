"""How results look: terminal tables."""
