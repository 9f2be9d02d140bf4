"""Programs written against the package by its first users run unchanged."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = {
    "textbook_program.py": "textbook program: all as the chapter says",
    "episode_walkthrough.py": "episode walkthrough: all as the guide says",
}


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_the_program_runs_unchanged(name: str) -> None:
    path = Path(__file__).parent / "programs" / name
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == PROGRAMS[name]
