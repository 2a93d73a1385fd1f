"""The torch modules that are traced: a transformer with what the zoo wants behind it. Imported only to export."""

import inspect
from typing import Any

import torch

__all__ = ["PairScorer", "SentenceEncoder"]


class SentenceEncoder(torch.nn.Module):  # type: ignore[misc]  # torch is not installed where types are checked
    """Ids and mask to a sentence vector and the token vectors; token types are zeros made inside."""

    def __init__(self, transformer: Any, *, pooling: str, normalize: bool) -> None:
        super().__init__()
        self.transformer = transformer
        self.pooling = pooling
        self.normalize = normalize
        self.typed = "token_type_ids" in inspect.signature(transformer.forward).parameters

    def forward(self, input_ids: Any, attention_mask: Any) -> tuple[Any, Any]:
        """Trace me."""
        types = {"token_type_ids": torch.zeros_like(input_ids)} if self.typed else {}
        hidden = self.transformer(input_ids=input_ids, attention_mask=attention_mask, **types).last_hidden_state
        vector = hidden[:, 0] if self.pooling == "cls" else _mean(hidden, attention_mask)
        if self.normalize:
            vector = torch.nn.functional.normalize(vector, p=2.0, dim=1)
        return vector, hidden


class PairScorer(torch.nn.Module):  # type: ignore[misc]  # as above
    """Ids, mask and, where the model has them, token types of a pair to its score, or to a probability per label."""

    def __init__(self, classifier: Any, activation: Any) -> None:
        super().__init__()
        self.classifier = classifier
        self.activation = activation

    def forward(self, input_ids: Any, attention_mask: Any, token_type_ids: Any = None) -> Any:
        """Trace me."""
        types = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
        return self.activation(self.classifier(input_ids=input_ids, attention_mask=attention_mask, **types).logits)


def _mean(hidden: Any, mask: Any) -> Any:
    weights = mask.unsqueeze(-1).to(hidden.dtype)
    return (hidden * weights).sum(1) / weights.sum(1).clamp(min=1e-9)
