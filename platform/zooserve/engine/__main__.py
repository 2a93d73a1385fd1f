import sys
from pathlib import Path

from zooserve.engine.orders import EngineOrders
from zooserve.engine.serving import serve

if __name__ == "__main__":
    serve(EngineOrders.model_validate_json(Path(sys.argv[1]).read_text(encoding="utf-8")))
