"""The lines that a training run gets to see, through the logger `remat`.

They are of level INFO and shown on stderr, unless the program configured logging itself: then its handlers decide.
"""

from __future__ import annotations

import logging
import sys

logger = logging.getLogger("remat")


def say(text: str) -> None:
    """Logs one line, on the first rank only."""
    from .distributed import is_first_rank

    if not is_first_rank():
        return
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.INFO)
    if not logger.hasHandlers():
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
        logger.addHandler(handler)
    logger.info(text)
