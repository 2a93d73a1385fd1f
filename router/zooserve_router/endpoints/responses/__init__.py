"""/v1/responses. A request passes: route -> request (its input, text, tools, refusals) -> chat -> body (its items)."""

from zooserve_router.endpoints.responses.route import routes

__all__ = ["routes"]
