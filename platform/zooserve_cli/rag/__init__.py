"""What `zooserve demo` does: `corpus` -> `chunks` -> `api` (embed) -> `store`, then `answering` for each question.

Everything of the platform is reached through its public HTTP API, as any application would.
"""
