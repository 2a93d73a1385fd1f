"""`zooserve reembed`: the texts of a collection, or of files, into the embedding space of another model.

A run passes: source -> staging (parts of some hundred rows in the job's folder) -> pipeline (Ray Data: worker,
embedding) -> store (the new collection) -> comparing (what the source gained meanwhile) -> proof (neighbours) -> alias.
Everything that was done is a line in the ledger, so that the same command goes on after any end. Wiring is in course.
"""
