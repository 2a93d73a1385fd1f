"""Calls of functions, built on output that a grammar holds to a schema, for backends that do not write them themselves.

`families` says how a model family writes calls, `telling` tells the model of the functions and of calls gone by,
`shapes` is the schema of an answer, `parsing` reads one as it comes, and `calling` puts the four together.
"""
