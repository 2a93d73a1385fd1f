"""The catalogue: every public model, declared once, in `zoo.yaml`.

The router, the CLI, the tests and the demo read this file's models from here; nobody else keeps a list.
`model` says what a model is, `backend` what answers for a chat model, `releases` who shares in its requests; `file`
reads them all, and `agreement` holds them against each other.
"""

from zooserve.catalogue.backend import CAPABILITIES, Adapter, Backend, BackendKind, Feature, OpenAIServer, ToolFamily
from zooserve.catalogue.file import (
    Catalogue,
    CatalogueError,
    ModelNotEnabled,
    UnknownModel,
    line_of,
    load_catalogue,
)
from zooserve.catalogue.kv import KvConfig, KvDtype
from zooserve.catalogue.model import ChunkTokens, Limits, LongText, Modality, Model, Prompts, SloClass, Task
from zooserve.catalogue.releases import Canary, Releases, Shadow
from zooserve.catalogue.spaces import fingerprint, space_fingerprints

__all__ = [
    "CAPABILITIES",
    "Adapter",
    "Backend",
    "BackendKind",
    "Canary",
    "Catalogue",
    "CatalogueError",
    "ChunkTokens",
    "Feature",
    "KvConfig",
    "KvDtype",
    "Limits",
    "LongText",
    "Modality",
    "Model",
    "ModelNotEnabled",
    "OpenAIServer",
    "Prompts",
    "Releases",
    "Shadow",
    "SloClass",
    "Task",
    "ToolFamily",
    "UnknownModel",
    "fingerprint",
    "line_of",
    "load_catalogue",
    "space_fingerprints",
]
