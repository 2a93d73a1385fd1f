"""The router. A request passes: endpoints (HTTP) -> dispatch (decision) -> backends (I/O). Wiring is in `app`.

`serve` puts the same app behind Ray Serve. `middleware` gives every request its `context` (id, class, deadline);
`dialects` turns errors into the caller's shape and status.
"""
