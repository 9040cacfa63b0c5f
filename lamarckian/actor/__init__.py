"""Actors: play many matches at once, answer their agents by batched inference, fill fragments."""
