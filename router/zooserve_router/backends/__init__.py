"""The I/O side: the zoo over HTTP with binary tensors, the leaf over gRPC streams."""
