"""The `text` of a request to /v1/responses: the form that its answer is held to."""

from dataclasses import dataclass
from typing import Any

from zooserve.errors import BadInput
from zooserve_router.chat.generation import Constraint
from zooserve_router.endpoints.asked import constraint_in
from zooserve_router.payload import Fields, shown

__all__ = ["TextForm"]

_VERBOSITIES = ("low", "medium", "high")


@dataclass(frozen=True)
class TextForm:
    """What the answer's text is to be."""

    kind: str = "text"
    constraint: Constraint | None = None
    verbosity: str = "medium"

    @classmethod
    def asked(cls, fields: Fields) -> "TextForm":
        """Raises BadInput."""
        value = fields.raw("text")
        if value is None:
            return cls()
        text = Fields.of(value, "text")
        verbosity = text.choice("verbosity", _VERBOSITIES, default="medium")
        kind, constraint = _format(text)
        text.refuse_unknown()
        return cls(kind, constraint, verbosity)

    def told(self) -> dict[str, Any]:
        """As the response repeats it."""
        form: dict[str, Any] = {"type": self.kind}
        if self.kind == "json_schema" and self.constraint is not None:
            held = self.constraint
            form |= {"name": held.name, "schema": held.schema, "strict": held.strict, "description": held.description}
        return {"format": form, "verbosity": self.verbosity}


def _format(text: Fields) -> tuple[str, Constraint | None]:
    value, path = text.raw("format"), text.path("format")
    if value is None:
        return "text", None
    form = Fields.of(value, path)
    kind = form.required_text("type")
    if kind == "json_schema":
        return kind, constraint_in(form)
    if kind not in ("text", "json_object"):
        raise BadInput(
            f"`{path}.type` is {shown(kind)}; it must be one of: text, json_object, json_schema.", param=f"{path}.type"
        )
    form.refuse_unknown()
    return kind, Constraint() if kind == "json_object" else None
