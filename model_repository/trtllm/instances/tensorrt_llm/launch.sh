#!/bin/sh
# Follows NVIDIA's guides; not run here. Each instance starts workers of its own: under mpirun they would take each
# other's ranks. The script comes with the wrapper's tag (triton_backend/scripts). Not from inside the clone: there
# `import tensorrt_llm` finds the clone instead of the container's library.
cd /tmp || exit 1
exec python3 "${TRTLLM_CLONE:-/opt/trtllm}/triton_backend/scripts/launch_triton_server.py" \
  --no-mpi --model_repo="${LEAF_MODELS:-/models/leaf}"
