"""Shared by every suite: the package `support`, and the fixtures that several suites use."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
