"""Pieces that the engine, the supervisor and the fetcher share. Standard library only."""
