"""The leaf: chat generation behind the tensor contract of TensorRT-LLM's Triton model.

`contract` names the tensors, `call` reads a request's and renders an answer's, `engine` runs requests in llama.cpp
(`llama`) and decides when each ends (`sampling`, `stops`), `metrics` names what is measured. Triton itself sits in
model_repository/leaf/tensorrt_llm/1/model.py. `conformance` probes any running leaf for the contract, `release` knows
what TensorRT-LLM's releases have of it.
"""
