"""Text to vector in one stub: the stage's tokenizer and ONNX Runtime in one process, for `ensemble_tax.py`.

It batches as the platform's two stages do: requests of one call that share a bucket share a run.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from zooserve_ensembles.buckets import BUCKETS, bucket_for, padded


class TritonPythonModel:
    """One instance."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load both."""
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        import onnxruntime as ort
        from tokenizers import Tokenizer

        folder = Path(args["model_repository"]) / args["model_version"]
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(BUCKETS[-1])
        options = ort.SessionOptions()
        options.intra_op_num_threads = len(os.sched_getaffinity(0))
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._session = ort.InferenceSession(str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"])

    def execute(self, requests: list[Any]) -> list[Any]:
        """A vector for each row of each request."""
        texts = [
            [raw.decode() for raw in pb_utils.get_input_tensor_by_name(request, "text").as_numpy().ravel()]
            for request in requests
        ]
        rows = [encoded.ids for encoded in self._tokenizer.encode_batch_fast([text for own in texts for text in own])]
        vectors = self._vectors(rows)
        ends = np.cumsum([len(own) for own in texts])
        lengths = np.array([[len(row)] for row in rows], np.int32)
        return [
            pb_utils.InferenceResponse(
                [
                    pb_utils.Tensor("embedding", vectors[end - len(own) : end]),
                    pb_utils.Tensor("tokens", lengths[end - len(own) : end]),
                ]
            )
            for own, end in zip(texts, ends, strict=True)
        ]

    def _vectors(self, rows: list[list[int]]) -> Any:
        vectors = np.empty((len(rows), 384), np.float32)
        of_bucket: dict[int, list[int]] = {}
        for place, row in enumerate(rows):
            of_bucket.setdefault(bucket_for(len(row)), []).append(place)
        for places in of_bucket.values():
            ids, mask, _ = padded([rows[place] for place in places])
            vectors[places] = self._session.run(["sentence_embedding"], {"input_ids": ids, "attention_mask": mask})[0]
        return vectors
