"""The zoo's pipelines, one family a module; what is listed here is rendered, drawn and checked."""

from zooserve_ensembles.families import (
    classify,
    embed,
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
