"""A query and each of its documents as one row of tokens, the way cross-encoders read them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer

__all__ = ["PairRows", "pair_rows"]

PairRows = tuple[list[list[int]], list[list[int]]]
"""Token ids and token types, one list per row."""


def pair_rows(tokenizer: "Tokenizer", query: str, documents: Sequence[str], longest: int) -> PairRows:
    """Row 0 holds special tokens alone, the others query and document in at most `longest` tokens.

    What is too long is cut from the document's end; only a query beyond half the room is cut itself, so that some of
    every document is read. The tokenizer's own truncation must be off.
    """
    room = longest - tokenizer.num_special_tokens_to_add(is_pair=True)
    asked = tokenizer.encode(query, add_special_tokens=False)
    asked.truncate(room // 2)
    rows = [tokenizer.encode("")]
    for document in tokenizer.encode_batch_fast(list(documents), add_special_tokens=False):
        document.truncate(room - len(asked.ids))
        rows.append(tokenizer.post_process(asked, document))
    return [row.ids for row in rows], [row.type_ids for row in rows]
