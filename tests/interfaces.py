"""Files of the public interface."""

import functools
import json
from pathlib import Path
from typing import Any

INTERFACE = Path(__file__).parent / "interface"


@functools.cache
def stored() -> dict[str, dict[str, Any]]:
    return {path.stem: json.loads(path.read_text()) for path in INTERFACE.glob("*.json")}
