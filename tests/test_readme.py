"""The README's code blocks run as they stand, and its two commands are where readers and scripts look for them."""

from __future__ import annotations

import re
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def python_blocks() -> list[tuple[int, str]]:
    """Return (line number of its first line, text) of every python block, in order."""
    text = README.read_text(encoding="utf-8")
    blocks = re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [(text.count("\n", 0, block.start(1)) + 1, block.group(1)) for block in blocks]


def test_the_code_blocks_run_one_after_the_other() -> None:
    blocks = python_blocks()
    assert len(blocks) >= 15
    namespace: dict[str, object] = {"__name__": "readme"}
    for line, text in blocks:
        # Blank lines in front, so that a traceback names the line of the README.
        exec(compile("\n" * (line - 1) + text, str(README), "exec"), namespace)


def test_two_commands_install_the_pinned_torch_first_and_run_the_job_and_the_tests() -> None:
    commands = re.findall(r"^python3 -m venv .*$", README.read_text(encoding="utf-8"), re.MULTILINE)
    begin = "python3 -m venv .venv && .venv/bin/pip install -q torch==2.13.0 && .venv/bin/pip install -q "
    assert commands == [
        begin + "'.[train]' && .venv/bin/ringback train CartPole-v1",
        begin + "'.[train,test]' && .venv/bin/pytest",
    ]
