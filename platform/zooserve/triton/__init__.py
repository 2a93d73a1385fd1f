"""Triton: where its binary is (`installation`), one running server (`server`), and how to ask it (`client`)."""
