"""Processes of one platform: who they are, what was recorded of them, and how every one of them is ended."""
