"""TensorRT plans of the zoo's encoders: built on the GPU that serves them, proven, and put in place only there.

A build passes: encoder (configuration and graph) -> plain_graph -> a Builder -> gate (golden texts) -> manifest. A plan
is served after `placing` alone, which holds its manifest against `here`, the machine. `command` wires them, `__main__`
is the command line inside NVIDIA's container: everything here imports the standard library and numpy, and what else a
build needs (tensorrt, tokenizers) only when it builds.
"""

__all__: list[str] = []
