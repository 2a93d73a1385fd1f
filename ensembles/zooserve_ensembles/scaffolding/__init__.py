"""New models and ensembles to begin with: every file of a working one, yours to edit from then on.

A scaffold passes: names (may it be called so) -> models, ensembles or embedders (its files) -> placing (onto the disk).
"""

__all__: list[str] = []
