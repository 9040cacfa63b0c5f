"""Fragments, and the memory pool they wait in."""
