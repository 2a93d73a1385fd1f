"""A small RAG service on zooserve. A request passes: app (HTTP) -> rag (what is done) -> zooserve's SDK.

Beside them the journal: what was answered, and what people thought of it.
"""
