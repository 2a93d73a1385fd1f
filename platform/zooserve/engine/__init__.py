"""The platform's own OpenAI server: llama.cpp's, in a process of its own, over one GGUF file.

`python -m zooserve.engine FILE` serves what its orders say (`orders`, `serving`). A supervisor starts it as a child
(`server`) and looks after it (`watch`). It is where JSON schemas, tools and log-probabilities come from: the leaf's
contract has none of them.
"""
