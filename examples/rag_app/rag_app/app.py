"""The service's HTTP: routes, bounds, and what each failure answers with.

uvicorn --factory rag_app.app:create
"""

import json
import math
import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, HTTPException, Request
from fastapi import Path as PathParameter
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel, Field
from starlette.requests import ClientDisconnect
from starlette.types import Send

from rag_app.journal import Journal
from rag_app.rag import Rag, Source, Suspicious, cited
from zooserve import AsyncZoo
from zooserve.errors import (
    BackendUnavailable,
    BadInput,
    DeadlineExceeded,
    Overloaded,
    StoreUnavailable,
    Unreachable,
    ZooserveError,
)

__all__ = ["Settings", "create"]

MAX_DOCUMENT_BYTES = 1024 * 1024
STATUS = {
    BadInput: 400,
    Overloaded: 429,
    BackendUnavailable: 503,
    StoreUnavailable: 503,
    Unreachable: 503,
    DeadlineExceeded: 504,
}
"""What the platform's errors become; any other is a 502."""

routes = APIRouter()


@dataclass(frozen=True)
class Settings:
    """Where things are."""

    data: Path
    """The journal, and the passages where there is no Qdrant server."""
    zoo_url: str | None = None
    """The platform; left out: ZOOSERVE_URL, else http://127.0.0.1:8000."""
    qdrant_url: str | None = None
    """A Qdrant server; left out: a folder, which one process at a time may use."""
    qdrant_api_key: str | None = None

    @classmethod
    def from_environment(cls) -> "Settings":
        """RAG_DATA, QDRANT_URL and QDRANT_API_KEY; zooserve reads its own."""
        get = os.environ.get
        return cls(Path(get("RAG_DATA", "data")), None, get("QDRANT_URL"), get("QDRANT_API_KEY"))

    @property
    def place(self) -> dict[str, Any]:
        """Where the collection is."""
        if self.qdrant_url is None:
            return {"path": self.data / "qdrant"}
        return {"url": self.qdrant_url, "api_key": self.qdrant_api_key}


def create(settings: Settings | None = None) -> FastAPI:
    """The service. It starts without the platform; /health says when both are ready."""
    where = settings or Settings.from_environment()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.journal = Journal(where.data / "journal.db")
        async with AsyncZoo(where.zoo_url) as zoo:
            app.state.rag = Rag(zoo, **where.place)
            yield

    app = FastAPI(title="rag_app", lifespan=lifespan)
    app.include_router(routes)
    app.add_exception_handler(ZooserveError, _failed)
    app.add_exception_handler(RequestValidationError, _malformed)
    return app


def _rag(request: Request) -> Rag:
    rag: Rag = request.app.state.rag
    return rag


def _journal(request: Request) -> Journal:
    journal: Journal = request.app.state.journal
    return journal


RagNeeded = Annotated[Rag, Depends(_rag)]
JournalNeeded = Annotated[Journal, Depends(_journal)]
Name = Annotated[str, PathParameter(pattern=r"^[\w.-]{1,100}$")]


class Question(BaseModel):
    """What is asked."""

    question: str = Field(min_length=1, max_length=1000)


class Feedback(BaseModel):
    """What somebody thought of an answer."""

    answer: str = Field(max_length=100)
    useful: bool
    comment: str = Field(default="", max_length=2000)


@routes.put("/documents/{name}")
async def ingest(name: Name, request: Request, rag: RagNeeded) -> dict[str, int]:
    """Store a text or markdown document under this name, in place of its last version."""
    return await rag.ingest(name, await _text(request))


@routes.delete("/documents/{name}")
async def forget(name: Name, rag: RagNeeded) -> dict[str, int]:
    """Remove a document."""
    removed = await rag.forget(name)
    if not removed:
        raise HTTPException(404, f"There is no document {name}.")
    return {"removed": removed}


@routes.post("/ask")
async def ask(asked: Question, rag: RagNeeded, journal: JournalNeeded) -> StreamingResponse:
    """The answer as server-sent events: `sources`, then `text` piece by piece, then `end`, or `error`."""
    try:
        sources = await rag.find(asked.question)
    except Suspicious as suspicion:
        raise HTTPException(422, f"Not answered. {suspicion}") from suspicion
    if not sources:
        raise HTTPException(404, "There are no documents to answer from: PUT one to /documents/{name} first.")
    return _Events(_told(rag, journal, asked.question, sources), media_type="text/event-stream")


@routes.post("/feedback", status_code=204)
def feedback(said: Feedback, journal: JournalNeeded) -> None:
    """Keep what somebody thought of an answer, by the id that its `end` event had."""
    if not journal.rate(said.answer, useful=said.useful, comment=said.comment):
        raise HTTPException(404, "There is no such answer, or it is too old.")


@routes.get("/health")
async def health(rag: RagNeeded) -> dict[str, Any]:
    """Whether questions can be answered now."""
    if unready := await rag.unready():
        raise HTTPException(503, f"The platform does not serve {', '.join(unready)} now.")
    return {"status": "ok", "passages": await rag.passages()}


async def _text(request: Request) -> str:
    """The body as text. What is too large is refused while it is still being read, or before if it says so."""
    announced = request.headers.get("content-length", "")
    body = bytearray()
    try:
        if announced.isdecimal() and int(announced) > MAX_DOCUMENT_BYTES:
            raise _too_large()
        async for chunk in request.stream():
            body += chunk
            if len(body) > MAX_DOCUMENT_BYTES:
                raise _too_large()
    except ClientDisconnect as gone:  # nobody reads the answer; half a document must not replace a whole one
        raise HTTPException(400, "The document did not come whole.") from gone
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise HTTPException(400, f"The document is no UTF-8 text: see byte {exc.start}. Convert it first.") from exc
    if "\0" in text:
        raise HTTPException(400, "The document holds NUL bytes: send plain text or markdown.")
    if not text.strip():
        raise HTTPException(400, "The document is empty.")
    return text


def _too_large() -> HTTPException:
    return HTTPException(413, f"A document may have {MAX_DOCUMENT_BYTES} bytes. Split it into several.")


async def _told(rag: Rag, journal: Journal, question: str, sources: list[Source]) -> AsyncGenerator[str, None]:
    """The events of one answer. A caller who leaves cancels this, which leaves the block, which frees the model."""
    yield _event("sources", [asdict(source) for source in sources])
    try:
        async with rag.answer(question, sources) as stream:
            async for text in stream:
                yield _event("text", text)
    except ZooserveError as error:
        yield _event("error", str(error))
        return
    answer = stream.answer
    identity = await run_in_threadpool(journal.record, question, answer.text, sources)
    made_by = f"{answer.model}@{answer.version}"
    yield _event("end", {"answer": identity, "cited": cited(answer.text, sources), "model": made_by})


class _Events(StreamingResponse):
    """Closes what it streams also when it is cancelled between two events, not when the garbage is collected."""

    async def stream_response(self, send: Send) -> None:
        async with aclosing(self.body_iterator):  # type: ignore[type-var]
            await super().stream_response(send)


def _event(name: str, data: Any) -> str:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"


async def _failed(request: Request, error: Exception) -> JSONResponse:
    """The platform's own words, with a status that fits, and when to come back where that is known."""
    status = next((status for kind, status in STATUS.items() if isinstance(error, kind)), 502)
    wait_s = getattr(error, "retry_after_s", None)
    headers = {"retry-after": str(math.ceil(wait_s))} if wait_s else None
    return JSONResponse({"detail": str(error)}, status, headers)


async def _malformed(request: Request, error: Exception) -> JSONResponse:
    """What is wrong with the request, without what was sent: JSON's NaN and half characters can be in no answer."""
    faults = error.errors() if isinstance(error, RequestValidationError) else []
    return JSONResponse({"detail": [{key: one[key] for key in ("type", "loc", "msg")} for one in faults]}, 422)
