# Generated from ../aio/client.py by `make sdk`: edit it there.
"""The client: one method for each route of the API."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar
from urllib.parse import quote

from zooserve.errors import BadInput, SpaceMismatch
from zooserve.sdk import answers, bodies
from zooserve.sdk.batches import Part, cut, estimated_tokens
from zooserve.sdk.blocking.chat import Chat
from zooserve.sdk.blocking.concurrency import Stream, in_order
from zooserve.sdk.bodies import Content, InputType, SloClass
from zooserve.sdk.budget import Budget, checked_seconds
from zooserve.sdk.calls import Call, new_request_id
from zooserve.sdk.connection import Connection
from zooserve.sdk.faults import renumber
from zooserve.sdk.inputs import checked_list, checked_name, checked_positive, checked_text
from zooserve.sdk.results import (
    Classified,
    Embeddings,
    ModelCard,
    Origin,
    QueryReading,
    Reranked,
    SparseEmbeddings,
    agreed,
)

if TYPE_CHECKING:  # httpx takes longer to load than all of ours: not before a client is made
    import httpx

    from zooserve.sdk.blocking.collection import Collection

__all__ = ["Progress", "Zoo"]

Progress = Callable[[int, int], None]
"""Called with how many items are done and how many there are, after each request of a call, in order."""

_MAX_CONTENT_PARTS = 16
"""Images in one request, at most, of the server's `nsfw`."""
_MAX_CONTENT_BYTES = 2**20
_MAX_BODY_BYTES = 8 * 2**20

Answered = TypeVar("Answered", bound=Origin)
Item = TypeVar("Item")


class Zoo(Chat):
    """A client of one zooserve platform, to be shared by any number of threads.

    `base_url` is its address (else ZOOSERVE_URL, else http://127.0.0.1:8000), `api_key` goes out as a bearer token
    (else ZOOSERVE_API_KEY). `timeout_s` is the total budget of a call, with all its tries and parts; the platform is
    told what is left of it. A failed try is repeated up to `retries` times where that may help and time is left. `http`
    brings an httpx client of yours (proxies, certificates), which is not closed with this one. `max_body_bytes` is what
    the platform takes in one request. Raises BadInput for an argument that cannot be right.

    >>> with Zoo() as zoo:
    ...     made = zoo.embed(["a duck", "a pond"])
    >>> made.model, made.version, made.numpy().shape
    ('embed', '1', (2, 384))

    Every call raises errors of `zooserve.errors`: ServingError's leaves for what the platform refuses or fails to do
    (BadInput and DeadlineExceeded also before anything is sent), CallFailed's where no platform answers.
    """

    def __init__(
        self,
        base_url: str | None = None,
        *,
        api_key: str | None = None,
        timeout_s: float = 60.0,
        retries: int = 2,
        http: "httpx.Client | None" = None,
        max_body_bytes: int = _MAX_BODY_BYTES,
    ) -> None:
        from zooserve.sdk.blocking.http import Http
        from zooserve.sdk.blocking.stores import Stores

        connection = Connection.of(base_url, api_key, timeout_s, retries)
        self.base_url = connection.base_url
        self.timeout_s = connection.timeout_s
        self._stores = Stores()
        self._http = Http(connection, checked_positive(max_body_bytes, "max_body_bytes"), http)

    def __repr__(self) -> str:
        """Its address, without the key."""
        return f"{type(self).__name__}({self.base_url!r})"

    def __enter__(self) -> Self:
        """The client itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes it."""
        self.close()

    def close(self) -> None:
        """Close the connections, collections' too. A call after it raises ClientClosed."""
        try:
            self._stores.close()
        finally:
            self._http.close()

    def embed(
        self,
        input: str | Sequence[str],
        *,
        model: str = "embed",
        input_type: InputType | None = None,
        slo_class: SloClass | None = None,
        space: str | None = None,
        long_text: bool = False,
        timeout_s: float | None = None,
        concurrency: int = 4,
        progress: Progress | None = None,
    ) -> Embeddings:
        """Vectors of one text or of a list, in its order: a long one goes in several requests, `concurrency` at once.

        `model` may be pinned as `embed@1`. `input_type` is "query" or "passage", for models with prompts. `space` is
        the fingerprint that the vectors must have. `long_text` takes texts of up to 8,192 tokens, to the mean vector of
        their windows. `slo_class` left out is "bulk" beyond 16 texts. The first error cancels what is still to come.

        Raises BadInput, InputTooLong, ModelNotFound, OtherEmbeddingSpace for another `space`, SpaceMismatch if a
        release ended between the requests, Overloaded, DeadlineExceeded, Unreachable.

        >>> made = zoo.embed(["a duck", "a pond"], model="embed@1")
        >>> len(made), made.dimensions, made.version
        (2, 384, '1')
        """
        texts = bodies.texts_of(input)
        prepared = self._prepared("/v1/embeddings", slo_class, timeout_s, space=space, items=len(texts))
        checked_text(model, "model")
        parts = self._gathered(
            prepared,
            list(cut(texts, estimated_tokens)),
            lambda part: bodies.embed_fields(model, part.items, input_type, long_text=long_text),
            lambda answer, part: answers.embeddings(answer, len(part.items)),
            concurrency,
            progress,
        )
        _refuse_other_space(parts[0].space, space)
        return answers.joined_embeddings(parts)

    def embed_stream(
        self,
        texts: Iterable[str],
        *,
        model: str = "embed",
        input_type: InputType | None = None,
        slo_class: SloClass | None = "bulk",
        space: str | None = None,
        long_text: bool = False,
        timeout_s: float | None = None,
        concurrency: int = 4,
    ) -> Stream[Embeddings]:
        """Vectors of any number of texts, of an endless iterable too: one result for each request, in order.

        At most `concurrency` requests' texts (256 each, or 48 KiB) and results are in memory. `timeout_s` is the budget
        of each request. All results are of one model, version and space. Leaving the iterator cancels what is in
        flight.

        Raises what `embed` raises, while it is iterated; SpaceMismatch as soon as another release answers.

        >>> [len(made) for made in zoo.embed_stream(f"duck {n}" for n in range(300))]
        [256, 44]
        """
        checked_text(model, "model")
        if isinstance(texts, str | bytes) or not isinstance(texts, Iterable):
            checked_list(texts, "texts")
        seconds = self.timeout_s if timeout_s is None else checked_seconds(timeout_s)
        request_id = new_request_id()
        headers = bodies.call_headers(slo_class, space)

        def ask(part: Part[str]) -> Embeddings:
            fields = bodies.embed_fields(model, part.items, input_type, long_text=long_text)
            call = Call("/v1/embeddings", Budget.of(seconds), fields, headers, request_id, patient=True)
            return answers.embeddings(self._answered(call, part), len(part.items))

        checked = (checked_text(text, f"texts[{place}]") for place, text in enumerate(texts))
        return _of_one_space(
            in_order(ask, cut(checked, estimated_tokens), checked_positive(concurrency, "concurrency")), space
        )

    def embed_sparse(
        self,
        input: str | Sequence[str],
        *,
        model: str = "embed_sparse",
        truncate: bool = False,
        slo_class: SloClass | None = None,
        space: str | None = None,
        timeout_s: float | None = None,
        concurrency: int = 4,
        progress: Progress | None = None,
    ) -> SparseEmbeddings:
        """Sparse vectors of one text or of a list: the words of the model's vocabulary, and their weights.

        A text beyond the model's length is refused, or cut at its end with `truncate`. Else as `embed`.
        """
        texts = bodies.texts_of(input)
        prepared = self._prepared("/embed_sparse", slo_class, timeout_s, space=space, items=len(texts))
        checked_text(model, "model")
        parts = self._gathered(
            prepared,
            list(cut(texts, estimated_tokens)),
            lambda part: bodies.sparse_fields(model, part.items, truncate=truncate),
            lambda answer, part: answers.sparse_embeddings(answer, len(part.items)),
            concurrency,
            progress,
        )
        _refuse_other_space(parts[0].space, space)
        return answers.joined_sparse(parts)

    def rerank(
        self,
        query: str,
        documents: Sequence[str],
        *,
        model: str = "rerank",
        top_n: int | None = None,
        max_tokens_per_doc: int | None = None,
        slo_class: SloClass | None = None,
        timeout_s: float | None = None,
        concurrency: int = 4,
        progress: Progress | None = None,
    ) -> Reranked:
        """The documents by their relevance to the query (0 to 1), the best `top_n` of them.

        What of a document lies beyond the model's length is not read; a longer query raises InputTooLong.

        >>> ranked = zoo.rerank("what swims on a pond?", ["a tax form", "a duck"])
        >>> ranked[0].document, ranked[0].index
        ('a duck', 1)
        """
        checked_text(query, "query")
        listed = bodies.documents_of(documents)
        wanted = None if top_n is None else checked_positive(top_n, "top_n")
        prepared = self._prepared("/v2/rerank", slo_class, timeout_s, items=len(listed))
        checked_text(model, "model")
        parts = self._gathered(
            prepared,
            list(cut(listed, bodies.content_bytes, max_size=_MAX_CONTENT_BYTES)),
            lambda part: bodies.rerank_fields(model, query, part.items, max_tokens_per_doc),
            lambda answer, part: answers.reranked(answer, part.items, part.first),
            concurrency,
            progress,
        )
        return answers.joined_ranks(parts, wanted)

    def classify(
        self,
        input: Content | Sequence[Content],
        *,
        model: str = "classify",
        slo_class: SloClass | None = None,
        timeout_s: float | None = None,
        concurrency: int = 4,
        progress: Progress | None = None,
    ) -> Classified:
        """Labels of one item or of a list, in its order: texts, or OpenAI's content parts for images and files.

        >>> made = zoo.classify(["you are an idiot", "the duck swims on the pond"])
        >>> [each.label for each in made]
        ['toxic', None]
        """
        items = bodies.items_of(input)
        prepared = self._prepared("/v1/classify", slo_class, timeout_s, items=len(items))
        checked_text(model, "model")
        parts = self._gathered(
            prepared,
            list(_content_parts(items)),
            lambda part: bodies.classify_fields(model, part.items),
            lambda answer, part: answers.classified(answer, len(part.items)),
            concurrency,
            progress,
        )
        return answers.joined_classified(parts)

    def rag_query(
        self,
        input: str,
        *,
        model: str = "rag_query",
        slo_class: SloClass | None = None,
        space: str | None = None,
        timeout_s: float | None = None,
    ) -> QueryReading:
        """A query's vector in the space of `embed`, whether it tries to take a prompt over, and its language.

        >>> read = zoo.rag_query("which birds live on ponds?")
        >>> len(read.vector), read.flagged, read.language
        (384, False, 'en')
        """
        fields = {
            "model": checked_text(model, "model"),
            "input": checked_text(input, "input"),
            "encoding_format": "base64",
        }
        prepared = self._prepared("/v1/rag_query", slo_class, timeout_s, space=space)
        read = answers.query_reading(self._http.answered(prepared.asking(fields)))
        _refuse_other_space(read.space, space)
        return read

    def models(self, *, timeout_s: float | None = None) -> list[ModelCard]:
        """Every model that the platform's catalogue has, and whether it is ready.

        >>> [card.dimensions for card in zoo.models() if card.name == "embed"]
        [384]
        """
        return answers.model_cards(self._http.answered(self._prepared("/v1/models", None, timeout_s)))

    def model(self, name: str, *, timeout_s: float | None = None) -> ModelCard:
        """One model by its name, an alias, or either with `@version`. Raises ModelNotFound.

        >>> card = zoo.model("embed@1")
        >>> card.task, card.dimensions
        ('embed', 384)
        """
        path = f"/v1/models/{quote(checked_name(name, 'name'), safe='/@:')}"
        return answers.model_card(self._http.answered(self._prepared(path, None, timeout_s)))

    def collection(
        self,
        name: str,
        *,
        path: str | Path | None = None,
        url: str | None = None,
        api_key: str | None = None,
        client: Any = None,
        model: str | None = None,
        sparse: str | None = None,
        rerank_model: str = "rerank",
        create: bool = True,
        adopt: bool = False,
        text_key: str = "text",
    ) -> "Collection":
        """A collection of texts in Qdrant whose vectors are all of one embedding space: docs/rag.md.

        It lies in the folder `path` (Qdrant's local mode, one process at a time), on the server at `url` with its
        `api_key`, or where `client` leads, an QdrantClient of yours, which is not closed with this one. `model`
        left out is the one whose vectors it holds, of a new one `embed`; one that is given must be of the same space.
        With `sparse`, say `embed_sparse`, a new one holds sparse vectors too and is searched by both. The first call
        creates it where it is not there, unless `create` is False. `adopt` writes into a collection that does not say
        which vectors it holds that they are `model`'s, its texts under `text_key`, once their size and a sample agree.

        Raises BadInput unless it is in exactly one place; everything else is found out by the first call.

        >>> docs = zoo.collection("docs", path=folder)
        >>> docs.upsert(["ducks swim on ponds", "tax forms are due in May"])
        Upserted(embedded=2, unchanged=0, updated=0, removed=0)
        >>> [hit.text for hit in docs.search("which birds swim?", 1)]
        ['ducks swim on ponds']
        """
        from zooserve.sdk.blocking.collection import Collection
        from zooserve.sdk.blocking.opening import Terms
        from zooserve.sdk.blocking.stores import StoreAddress

        terms = Terms(checked_text(name, "name"), model, sparse, create, adopt, text_key)
        address = StoreAddress.of(path, url, api_key, client)
        return Collection(self, self._stores, address, terms, rerank_model)

    def _prepared(
        self,
        path: str,
        slo_class: SloClass | None,
        timeout_s: float | None,
        *,
        space: str | None = None,
        items: int = 1,
    ) -> Call:
        """A call whose budget begins now; its fields come with each part."""
        budget = Budget.of(self.timeout_s if timeout_s is None else timeout_s)
        return Call(path, budget, headers=bodies.call_headers(slo_class, space, items))

    def _gathered(
        self,
        call: Call,
        parts: Sequence[Part[Item]],
        fields: Callable[[Part[Item]], dict[str, Any]],
        read: Callable[[answers.Answer, Part[Item]], Answered],
        concurrency: int,
        progress: Progress | None,
    ) -> list[Answered]:
        """The answers to the parts of a call, all of one release."""

        def ask(part: Part[Item]) -> Answered:
            return read(self._answered(call.asking(fields(part), patient=patient), part), part)

        patient = len(parts) > 1 or call.is_bulk
        limit = min(checked_positive(concurrency, "concurrency"), len(parts))
        total = sum(len(part.items) for part in parts)
        made: list[Answered] = []
        done = 0
        with closing(in_order(ask, parts, limit)) as answered:
            for answer in answered:
                made.append(answer)
                agreed([made[0], answer])
                done += len(parts[len(made) - 1].items)
                if progress is not None:
                    progress(done, total)
        return made

    def _answered(self, call: Call, part: Part[Item]) -> answers.Answer:
        """The answer to one part. What is wrong with an item is said by its place in the whole list."""
        try:
            return self._http.answered(call)
        except BadInput as exc:
            renumber(exc, part.first)
            raise


def _of_one_space(results: Stream[Embeddings], space: str | None) -> Stream[Embeddings]:
    first: Embeddings | None = None
    with closing(results) as made:
        for result in made:
            first = result if first is None else first
            _refuse_other_space(result.space, space)
            agreed([first, result])
            yield result


def _content_parts(items: Sequence[Content]) -> Iterable[Part[Content]]:
    if all(isinstance(item, str) for item in items):
        return cut(items, estimated_tokens)
    return cut(items, bodies.content_bytes, max_items=_MAX_CONTENT_PARTS, max_size=_MAX_CONTENT_BYTES)


def _refuse_other_space(answered: str, wanted: str | None) -> None:
    """The platform refuses it itself; a proxy may have lost the header."""
    if wanted is not None and answered != wanted:
        raise SpaceMismatch(f"The vectors are in the space {answered}, and {wanted} was asked for.")
