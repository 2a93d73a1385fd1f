"""What is put into a collection: chunks and documents, their ids and hashes, and the checks before anything is sent.

Pure. Everything that is given becomes Passages, one for each point of Qdrant, and a DocumentEnd behind each document.
"""

import hashlib
import json
import operator
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid5

from zooserve.errors import BadInput
from zooserve.sdk.index import RESERVED_PAYLOAD
from zooserve.sdk.inputs import checked_text

__all__ = [
    "PAYLOAD_BYTES",
    "TEXT_BYTES",
    "Chunk",
    "Document",
    "DocumentEnd",
    "Id",
    "Item",
    "Passage",
    "document_names",
    "ids_given",
    "passages",
    "point_id",
]

TEXT_BYTES = 1 << 20
"""A chunk's text has at most so many bytes of UTF-8; what is longer than the model reads is refused by the platform."""
PAYLOAD_BYTES = 1 << 20
"""A chunk's payload has at most so many bytes as JSON."""

# Ids that are texts become UUIDs in this namespace. Another one would give every point a new id.
_NAMESPACE = UUID("6f2c1f2e-6a55-5d0e-9d5c-2f1f0c3f7a10")

_UUID = re.compile(
    r"(?:urn:uuid:)?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32}"
    r"|\{[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\}",
    re.IGNORECASE,
)
"""As Qdrant reads them. `uuid.UUID` reads more, white space and underscores among it: two texts would be one id."""

Id = int | str | UUID
"""An unsigned 64-bit integer or a UUID is Qdrant's own and kept; any other text gets a UUID made of it."""


@dataclass(frozen=True)
class Chunk:
    """One text, embedded whole. Without an id it gets one of its text; `payload` is kept beside it and comes back."""

    text: str
    id: Id | None = None
    payload: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Document:
    """A text in chunks, replaced as a whole: chunks that its new version has no more are removed.

    `chunks` is one text, or any iterable of texts or Chunks without ids; `payload` goes to each of them.
    """

    id: Id
    chunks: str | Iterable[str | Chunk]
    payload: Mapping[str, Any] = field(default_factory=dict)


Item = str | Chunk | Document | Mapping[str, Any]
"""A text is a Chunk, a mapping with `chunks` a Document, any other a Chunk; their further keys are payload."""


@dataclass(frozen=True)
class Passage:
    """A point to be: `point` is its id in Qdrant, `shown` what errors call it, `payload` all of its payload."""

    point: int | str
    shown: str
    text: str
    payload: dict[str, Any]

    @property
    def sha256(self) -> str:
        """Of the text, in hex."""
        return str(self.payload["sha256"])

    @property
    def size(self) -> int:
        """Bytes of the payload, the text among it, as JSON."""
        return len(json.dumps(self.payload))


@dataclass(frozen=True)
class DocumentEnd:
    """Behind a document's last passage: its name, and the points that it has now."""

    document: str
    points: frozenset[int | str]


def point_id(value: Id) -> int | str:
    """The id as Qdrant has it. Raises BadInput for what can be none.

    >>> point_id(7), point_id("550E8400E29B41D4A716446655440000")
    (7, '550e8400-e29b-41d4-a716-446655440000')
    """
    known = _known_id(value)
    if isinstance(known, int):
        if not 0 <= known < 1 << 64:
            shown = known if abs(known) < 1 << 256 else "given"  # Python refuses to write down very long ones
            raise BadInput(f"The id {shown} is no unsigned 64-bit integer; take one, a UUID, or a text.", param="id")
        return known
    return _uuid_in(known) or str(uuid5(_NAMESPACE, f"id\n{known}"))


def ids_given(value: Any) -> list[tuple[int | str, str]]:
    """Points, and names of documents, of one id or of several. Raises BadInput for what is no id.

    >>> ids_given([7, "b"])[0]
    (7, '7')
    """
    if isinstance(value, str | bytes | int | UUID | Chunk | Document | Mapping) or not isinstance(value, Iterable):
        value = [value]
    return [(point_id(one), str(_known_id(one))) for one in value]


def document_names(names: Iterable[str]) -> list[str]:
    """The names as chunks may have them under `document`: of a UUID all that it is usually written as.

    >>> len(document_names(["a book", "550e8400-e29b-41d4-a716-446655440000"]))
    9
    """
    return [spelled for name in names for spelled in _spellings(name)]


def passages(items: Iterable[Item]) -> Iterator[Passage | DocumentEnd]:
    """Everything given, checked, one after the other. Holds the ids seen and one item, never the texts.

    Raises BadInput naming the item: an id that comes twice, a text that is empty, too large or no Unicode, a payload
    that is no JSON. Equal chunks without ids are one and the same point.
    """
    seen = _Seen()
    for item in items:
        whole = _read(item)
        yield from _of_document(whole, seen) if isinstance(whole, Document) else _of_chunk(whole, seen)


class _Seen:
    """The ids of one call, about 100 bytes each, so that none comes twice unnoticed."""

    def __init__(self) -> None:
        self._given: set[int | str] = set()
        self._made: dict[str, bytes] = {}

    def given(self, key: int | str, shown: str) -> None:
        """Raises BadInput where the caller gave it before."""
        if key in self._given:
            raise BadInput(
                f"The id {shown} comes twice in one call, and only one of the two could be kept. Give each chunk and "
                "each document an id of its own.",
                param="id",
                code="duplicate_id",
            )
        self._given.add(key)

    def made(self, key: str, payload: Mapping[str, Any], shown: str) -> bool:
        """Whether this point, named by its text, is new. Raises BadInput where it came with another payload."""
        digest = hashlib.sha256(json.dumps(payload, sort_keys=True).encode()).digest()[:16]
        before = self._made.setdefault(key, digest)
        if before is not digest and before != digest:
            raise BadInput(
                f"The text {shown} comes twice in one call, with two payloads and no ids to tell them apart. Give each "
                "chunk an id.",
                param="id",
                code="duplicate_id",
            )
        return before is digest


def _read(item: Item) -> Chunk | Document:
    if isinstance(item, Chunk | Document):
        return item
    if isinstance(item, str):
        return Chunk(item)
    if not isinstance(item, Mapping):
        raise BadInput(
            f"An item is of type {type(item).__name__}; give texts, Chunks, Documents or mappings with `text`.",
            param="items",
        )
    rest = {key: value for key, value in item.items() if key not in ("id", "text", "chunks")}
    if "chunks" in item:
        if "id" not in item:
            raise BadInput("A document has no `id`: give it one, so that its next version can replace it.", param="id")
        return Document(item["id"], item["chunks"], rest)
    if "text" not in item:
        raise BadInput(f"An item has neither `text` nor `chunks`; it has {sorted(map(str, item))}.", param="items")
    return Chunk(item["text"], item.get("id"), rest)


def _of_chunk(chunk: Chunk, seen: _Seen) -> Iterator[Passage]:
    shown = _shortened(chunk.text) if chunk.id is None else repr(chunk.id)
    text = _checked(chunk.text, f"The chunk {shown}")
    payload = _payload(chunk.payload, f"The chunk {shown}")
    point = _point_of_text("", 0, text) if chunk.id is None else point_id(chunk.id)
    if chunk.id is None:
        if not seen.made(str(point), payload, shown):
            return
    else:
        seen.given(point, shown)
        payload["id"] = _known_id(chunk.id)
    yield Passage(point, shown, text, {**payload, "text": text, "sha256": _sha256(text)})


def _of_document(document: Document, seen: _Seen) -> Iterator[Passage | DocumentEnd]:
    own, name = point_id(document.id), _document_name(document.id)
    whole = _uuid_in(name) or name  # a chunk keeps its point, however the UUID is written
    for key in {own, point_id(name)}:  # 7 and "7" name the same chunks
        seen.given(key, repr(document.id))
    shared = _payload(document.payload, f"The document {document.id!r}")
    times: dict[str, int] = {}
    points: set[int | str] = set()
    for number, chunk in enumerate(_chunks_of(document)):
        shown = f"chunk {number} of the document {document.id!r}"
        text = _checked(chunk.text, shown)
        payload = {**shared, **_payload(chunk.payload, shown)}
        digest = _sha256(text)
        times[digest] = times.get(digest, -1) + 1
        point = _point_of_text(whole, times[digest], text)
        points.add(point)
        yield Passage(
            point, shown, text, {**payload, "text": text, "sha256": digest, "document": name, "chunk": number}
        )
    yield DocumentEnd(name, frozenset(points))


def _chunks_of(document: Document) -> Iterator[Chunk]:
    if not isinstance(document.chunks, str | Iterable) or isinstance(document.chunks, bytes | Mapping):
        raise BadInput(
            f"The chunks of the document {document.id!r} are of type {type(document.chunks).__name__}; give one text, "
            "or texts.",
            param="chunks",
        )
    for chunk in [document.chunks] if isinstance(document.chunks, str) else document.chunks:
        whole = chunk if isinstance(chunk, Chunk) else Chunk(chunk)
        if whole.id is not None:
            raise BadInput(
                f"A chunk of the document {document.id!r} has an id, {whole.id!r}: chunks of a document get theirs "
                "from it. Give it as a Chunk by itself, or leave its id out.",
                param="id",
            )
        yield whole


def _checked(text: Any, shown: str) -> str:
    if isinstance(text, bytes | bytearray | memoryview):
        raise BadInput(
            f"{shown}: `text` is of type {type(text).__name__}; it must be a string. Decode it first: "
            'text.decode("utf-8", errors="replace") takes files that are not UTF-8 throughout, too.',
            param="text",
            code="invalid_type",
        )
    if isinstance(text, str) and len(text) > TEXT_BYTES:  # before it is looked through, and copied for that
        raise _too_large(shown, f"{len(text):,} {'bytes' if text.isascii() else 'characters'}")
    try:
        checked_text(text, "text")
    except BadInput as exc:
        raise BadInput(f"{shown}: {exc}", param="text", code=exc.code) from exc
    size = len(text) if text.isascii() else len(text.encode())
    if size > TEXT_BYTES:
        raise _too_large(shown, f"{size:,} bytes")
    return str(text)


def _too_large(shown: str, size: str) -> BadInput:
    return BadInput(
        f"{shown} has {size}; a text may have at most {TEXT_BYTES:,} bytes. No model reads so much: cut it into "
        "chunks, with zooserve.split(text) or a splitter of yours.",
        param="text",
        code="text_too_large",
    )


def _payload(payload: Any, shown: str) -> dict[str, Any]:
    """A copy as JSON has it, so that what comes back from Qdrant can be compared with it."""
    if not isinstance(payload, Mapping) or not all(isinstance(key, str) for key in payload):
        raise BadInput(f"{shown}: its payload is no mapping from texts.", param="payload")
    ours = RESERVED_PAYLOAD & payload.keys()
    if ours:
        raise BadInput(
            f"{shown}: its payload has {', '.join(map(repr, sorted(ours)))}, which the collection writes itself. Take "
            "other keys.",
            param="payload",
        )
    try:
        written = json.dumps(dict(payload), allow_nan=False, ensure_ascii=False).encode()
    except UnicodeEncodeError as exc:
        raise BadInput(f"{shown}: its payload holds half a surrogate pair: send whole ones.", param="payload") from exc
    except (TypeError, ValueError, RecursionError) as exc:
        raise BadInput(f"{shown}: its payload cannot be written as JSON: {exc}.", param="payload") from exc
    if len(written) > PAYLOAD_BYTES:
        raise BadInput(
            f"{shown}: its payload has {len(written):,} bytes as JSON; it may have {PAYLOAD_BYTES:,}.", param="payload"
        )
    copy: dict[str, Any] = json.loads(written)
    return copy


def _point_of_text(document: str, time: int, text: str) -> str:
    """Of a document's chunk by its text: a paragraph that moves keeps its point, and its vector."""
    return str(uuid5(_NAMESPACE, f"text\n{document}\n{time}\n{_sha256(text)}"))


def _known_id(value: Any) -> int | str:
    """As JSON has it: numpy's integers among integers, UUIDs as texts. Raises BadInput for what can be no id."""
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, str):
        return str(checked_text(value, "id"))
    try:
        if not isinstance(value, bool):
            return operator.index(value)
    except TypeError:
        pass
    told = type(value).__name__ if isinstance(value, Mapping | Chunk | Document) else repr(value)[:80]
    raise BadInput(f"An id is {told}; it must be an unsigned integer, a UUID, or a text.", param="id")


def _document_name(value: Any) -> str:
    """What chunks have under `document`: as it was given, unless that is a UUID in an unusual mixture."""
    name = str(_known_id(value))
    spelled = _spellings(name)
    return name if name in spelled else spelled[0]


def _spellings(name: str) -> tuple[str, ...]:
    """How a UUID is usually written; any other name is itself."""
    plain = _uuid_in(name)
    if plain is None:
        return (name,)
    ways = (plain, plain.replace("-", ""), f"{{{plain}}}", f"urn:uuid:{plain}")
    return (*ways, *(way.upper() for way in ways[:3]), f"urn:uuid:{plain.upper()}")


def _uuid_in(value: str) -> str | None:
    return str(UUID(value.lower())) if _UUID.fullmatch(value) else None


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _shortened(text: Any) -> str:
    return ascii(text[:40] + ("…" if len(text) > 40 else "")) if isinstance(text, str) else repr(type(text).__name__)


def rereadable(items: Any) -> bool:
    """Whether everything can be checked before anything is stored: lists, whose documents have lists of chunks."""
    return isinstance(items, Sequence) and not isinstance(items, str | bytes) and all(map(_is_rereadable, items))


def _is_rereadable(item: Any) -> bool:
    chunks = item.get("chunks", "") if isinstance(item, Mapping) else getattr(item, "chunks", "")
    return isinstance(chunks, Sequence)
