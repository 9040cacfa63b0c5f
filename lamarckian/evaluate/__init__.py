"""Runs whole trainings and evaluations; the bridge between what learns and what evolves."""
