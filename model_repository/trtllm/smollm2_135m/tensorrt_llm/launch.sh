#!/bin/sh
# Follows NVIDIA's guides; not run here. From a clone of TensorRT-LLM, `import tensorrt_llm` finds the clone instead of
# the container's library: so start elsewhere.
cd /tmp || exit 1
exec trtllm-llmapi-launch tritonserver --model-repository="${LEAF_MODELS:-/models/leaf}" --exit-on-error=false \
  --metrics-config=summary_latencies=true --metrics-config=histogram_latencies=true
