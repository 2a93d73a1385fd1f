"""Python stages of the ensembles, run inside Triton's Python backend; `triton_python_backend_utils` exists only there.

A stage's `model.py` in the repository imports one of these classes; what it computes is in the pure modules beside.
"""
