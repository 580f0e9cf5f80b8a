"""Limits of a sandbox as a whole: what they hold, what they report, who is spared."""

from __future__ import annotations

import asyncio
import os
import time

import pytest

from isobox import BubblewrapWorkspace, LimitError, Limits, LimitError as _LimitError
