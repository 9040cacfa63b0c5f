"""Learners: turn fragments into new versions."""
