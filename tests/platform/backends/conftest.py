"""The backend's files are imported as Triton's stub does: from their folder, without a package."""

import sys
from pathlib import Path

BACKEND = Path(__file__).parents[3] / "platform" / "triton-backends" / "onnxruntime"

# At the end, as the stub has it: the folder is called like a package that must win over it.
sys.path.append(str(BACKEND))
