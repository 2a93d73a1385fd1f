"""The zoo's pipelines, one family a module; what is listed here is rendered, drawn and checked."""

from zooserve_ensembles.families import (
    classify,
    embed,
    embed_int8,
    embed_multilingual,
    embed_sparse,
    file_type,
    injection,
    language,
    nsfw,
    rag_query,
    rerank,
    rerank_cross,
    rerank_trees,
)

__all__ = ["FAMILIES"]

FAMILIES = (
    embed.FAMILY,
    embed_int8.FAMILY,
    embed_multilingual.FAMILY,
    embed_sparse.FAMILY,
    rerank.FAMILY,
    rerank_cross.FAMILY,
    rerank_trees.FAMILY,
    classify.FAMILY,
    rag_query.FAMILY,
    language.FAMILY,
    injection.FAMILY,
    file_type.FAMILY,
    nsfw.FAMILY,
)
