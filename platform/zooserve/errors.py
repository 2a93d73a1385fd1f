"""Everything this platform refuses or fails to do, as one small tree without HTTP in it.

    ZooserveError
    ├── ServingError             a request was refused or failed
    │   ├── BadInput             the request cannot be right; sending it again will not help
    │   │   ├── InputTooLong     more tokens than the model reads
    │   │   ├── TooManyItems     more inputs than one request may bring
    │   │   ├── Unsupported      a parameter the backend of this model does not have
    │   │   └── TemplateFailed   the chat template raised on these messages
    │   ├── BodyTooLarge         the body passed the cap while it was read
    │   ├── ModelNotFound        nobody serves this name, or not at this version
    │   ├── OtherEmbeddingSpace  the request insists on another embedding space than the model's
    │   ├── RouteNotFound        no such path
    │   ├── MethodNotAllowed     the path exists, not with this method
    │   ├── Overloaded           at the limit of work in flight; retrying later may work
    │   ├── BackendUnavailable   the server behind this model cannot be reached or is not ready
    │   ├── BackendFailed        the server behind this model answered with a failure
    │   ├── DeadlineExceeded     the total time budget ran out
    │   └── InternalError        nobody foresaw it; the traceback is in the log under the request's id
    ├── CallFailed               a client's call got no answer of a platform
    │   ├── Unreachable          nobody answers at the address
    │   ├── KeyRefused           what answers there wants another key, or one at all
    │   ├── UnreadableAnswer     what answers there does not speak this API
    │   ├── AnswerBrokeOff       a streamed answer ended in the middle
    │   └── ClientClosed         the client was closed before
    ├── SpaceMismatch            vectors or answers of one model's version, to be mixed with another's
    ├── CollectionError          a collection cannot be used as asked
    │   ├── NoSuchCollection     neither a collection nor an alias has this name, or the alias points nowhere
    │   ├── UnmarkedCollection   it does not say which vectors it holds; `adopt=True` writes that down
    │   ├── StoreUnavailable     Qdrant does not answer, or another process holds its folder
    │   └── StoreRefused         Qdrant refuses the key or the request
    └── SetupError               the platform cannot be set up or started as asked
        ├── PortTaken            another process listens there
        ├── AlreadyRunning       this state folder belongs to a running platform
        ├── NotRunning           no platform runs from this state folder
        ├── NoSuchTrace          the trace log does not know what is asked for, or is not there
        ├── LockFault            the weights lock cannot be used
        ├── MissingPart          a binary, library or weight is not there
        ├── WrongHash            a file is not the one that was pinned
        ├── DownloadFailed       a package could not be fetched whole
        ├── DiskFull             no room left for what was being written
        ├── ExportFailed         a checkpoint cannot be exported as asked
        ├── EngineRefused        a TensorRT plan cannot be built, or is not for this machine
        ├── ScaffoldRefused      a new model cannot be begun under this name, for this backend or in this place
        ├── JobRefused           a job cannot be begun, continued or taken back as asked
        ├── JobStopped           a job ended before its end; the same command goes on
        ├── NotALeaf             what answers there does not speak the leaf's contract
        └── ServerFailed         a server did not start, or ended by itself

Where a request failed in a pipeline of models, its error carries the FailedStage. What a client's call raises carries
where it came from: `status`, `request_id` and `retry_after_s`, each None where that is not known.
Messages say what was wrong and what to do next. Status codes live at the edge (`zooserve_router.dialects`).
"""

from dataclasses import dataclass

__all__ = [
    "AlreadyRunning",
    "AnswerBrokeOff",
    "BackendFailed",
    "BackendUnavailable",
    "BadInput",
    "BodyTooLarge",
    "CallFailed",
    "ClientClosed",
    "CollectionError",
    "DeadlineExceeded",
    "DiskFull",
    "DownloadFailed",
    "EngineRefused",
    "ExportFailed",
    "FailedStage",
    "InputTooLong",
    "InternalError",
    "JobRefused",
    "JobStopped",
    "KeyRefused",
    "LockFault",
    "MethodNotAllowed",
    "MissingPart",
    "ModelNotFound",
    "NoSuchCollection",
    "NoSuchTrace",
    "NotALeaf",
    "NotRunning",
    "OtherEmbeddingSpace",
    "Overloaded",
    "PortTaken",
    "RouteNotFound",
    "ScaffoldRefused",
    "ServerFailed",
    "ServingError",
    "SetupError",
    "SpaceMismatch",
    "StoreRefused",
    "StoreUnavailable",
    "TemplateFailed",
    "TooManyItems",
    "UnmarkedCollection",
    "Unreachable",
    "UnreadableAnswer",
    "Unsupported",
    "WrongHash",
    "ZooserveError",
]


class ZooserveError(Exception):
    """Root of everything raised on purpose."""


@dataclass(frozen=True)
class FailedStage:
    """Where in a pipeline of models a request failed, and how; an empty name where that is not known."""

    name: str
    version: str
    reason: str

    @property
    def label(self) -> str:
        """`embed_encoder/1`, or `unknown`."""
        return "/".join(part for part in (self.name, self.version) if part) or "unknown"


class ServingError(ZooserveError):
    """A request was refused or failed.

    `param` names the field of the request at fault, `code` the machine-readable reason, where there is one; `failed`
    is the stage that failed, where the request got as far as a pipeline of them.
    """

    code: str | None = None
    status: int | None = None
    """Of HTTP, where the error came over it."""
    request_id: str | None = None
    """What to look for in the platform's access log and traces."""
    retry_after_s: float | None = None
    """When to come back, as whoever refused says."""

    def __init__(
        self, message: str, *, param: str | None = None, code: str | None = None, failed: FailedStage | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code or type(self).code
        self.failed = failed


class BadInput(ServingError):
    """The request cannot be right; sending it again will not help."""

    code = "invalid_value"


class InputTooLong(BadInput):
    """More tokens than the model reads."""

    code = "context_length_exceeded"


class TooManyItems(BadInput):
    """More inputs than one request may bring."""

    code = "too_many_items"


class Unsupported(BadInput):
    """A parameter that the backend of this model does not have."""

    code = "unsupported_parameter"


class TemplateFailed(BadInput):
    """The chat template raised on these messages."""

    code = "template_failed"


class BodyTooLarge(ServingError):
    """The body passed the cap while it was read."""

    code = "body_too_large"


class ModelNotFound(ServingError):
    """Nobody serves this name, or not at this version."""

    code = "model_not_found"


class OtherEmbeddingSpace(ServingError):
    """The request insists on another embedding space than the model's."""

    code = "embedding_space_mismatch"


class RouteNotFound(ServingError):
    """No such path."""

    code = "route_not_found"


class MethodNotAllowed(ServingError):
    """The path exists, not with this method."""

    code = "method_not_allowed"


class Overloaded(ServingError):
    """At the limit of work in flight; retrying after `retry_after_s` may work."""

    code = "overloaded"

    def __init__(
        self,
        message: str,
        *,
        retry_after_s: float = 1.0,
        param: str | None = None,
        failed: FailedStage | None = None,
    ) -> None:
        super().__init__(message, param=param, failed=failed)
        self.retry_after_s = retry_after_s


class BackendUnavailable(ServingError):
    """The server behind this model cannot be reached or is not ready; retrying after `retry_after_s` may work."""

    code = "backend_unavailable"

    def __init__(
        self,
        message: str,
        *,
        retry_after_s: float | None = None,
        param: str | None = None,
        code: str | None = None,
        failed: FailedStage | None = None,
    ) -> None:
        super().__init__(message, param=param, code=code, failed=failed)
        self.retry_after_s = retry_after_s


class BackendFailed(ServingError):
    """The server behind this model answered with a failure."""

    code = "backend_failed"


class DeadlineExceeded(ServingError):
    """The total time budget ran out."""

    code = "deadline_exceeded"


class InternalError(ServingError):
    """Nobody foresaw it; the traceback is in the log under the request's id."""

    code = "internal_error"


class CallFailed(ZooserveError):
    """A client's call got no answer of a platform."""

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        request_id: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.request_id = request_id
        self.retry_after_s = retry_after_s


class Unreachable(CallFailed):
    """Nobody answers at the address."""


class KeyRefused(CallFailed):
    """What answers there wants another key, or one at all."""


class UnreadableAnswer(CallFailed):
    """What answers there does not speak this API: a proxy's page, or another server."""


class AnswerBrokeOff(CallFailed):
    """A streamed answer ended in the middle. What came of it is in the stream's `text`; ask again for a whole one."""


class ClientClosed(CallFailed):
    """The client was closed before."""


class SpaceMismatch(ZooserveError):
    """Vectors or answers of one model's version, to be mixed with another's."""


class CollectionError(ZooserveError):
    """A collection cannot be used as asked."""


class NoSuchCollection(CollectionError):
    """Neither a collection nor an alias has this name, or the alias points nowhere."""


class UnmarkedCollection(CollectionError):
    """It does not say which vectors it holds; `adopt=True` writes that down, once its size is that of the model's."""


class StoreUnavailable(CollectionError):
    """Qdrant does not answer, or another process holds its folder."""


class StoreRefused(CollectionError):
    """Qdrant refuses the key or the request."""


class SetupError(ZooserveError):
    """The platform cannot be set up or started as asked."""


class PortTaken(SetupError):
    """Another process listens there."""


class AlreadyRunning(SetupError):
    """This state folder belongs to a running platform."""


class NotRunning(SetupError):
    """No platform runs from this state folder."""


class NoSuchTrace(SetupError):
    """The trace log does not know what is asked for, or is not there."""


class LockFault(SetupError):
    """The weights lock cannot be used; the message names the file, the line and the field."""


class MissingPart(SetupError):
    """A binary, library or weight is not there."""


class WrongHash(SetupError):
    """A file is not the one that was pinned."""


class DownloadFailed(SetupError):
    """A package could not be fetched whole."""


class DiskFull(SetupError):
    """No room left for what was being written."""


class JobRefused(SetupError):
    """A job cannot be begun, continued or taken back as asked; the message says what to ask instead."""


class JobStopped(SetupError):
    """A job ended before its end. What it did is kept, and the same command goes on from there."""


class NotALeaf(SetupError):
    """What answers there does not speak the leaf's contract."""


class ScaffoldRefused(SetupError):
    """A new model cannot be begun under this name, for this backend or in this place."""


class ExportFailed(SetupError):
    """A checkpoint cannot be exported as asked."""


class EngineRefused(SetupError):
    """A TensorRT plan cannot be built, or is not for this machine."""


class ServerFailed(SetupError):
    """A server did not start, or ended by itself."""
