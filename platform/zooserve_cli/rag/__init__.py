"""What `zooserve demo` does: `corpus` -> `chunks` -> `ingest`, then `answering` for each question.

Everything of the platform is reached through the SDK, as any application would.
"""
