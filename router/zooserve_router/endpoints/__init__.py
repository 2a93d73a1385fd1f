"""The HTTP side: each module parses one family of routes into frozen requests and renders the answers."""
