"""Does what the blocks of a page say."""

import contextlib
import io
import os
import shlex
import subprocess
import sys
from pathlib import Path

from alignfuse.cli import main
from tests.docs.markdown import Block, missing

SOURCES = Path(__file__).resolve().parents[2] / "src"


def bash(text: str, folder: Path, programs: Path) -> str:
    """What a script prints on either stream; it must end well. `programs` holds what it can call beside the usual."""
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"}
    command = ["bash", "-euo", "pipefail", "-c", text]
    done = subprocess.run(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert done.returncode == 0, f"{text}\nended with {done.returncode}:\n{done.stdout}"
    return done.stdout


def install(folder: Path) -> None:
    """The programs that our pages call, of this environment and these sources."""
    prefix = f"#!/bin/sh\nPYTHONPATH={shlex.quote(str(SOURCES))} exec {shlex.quote(sys.executable)}"
    for name, module in {"alignfuse": "-m alignfuse", "python": "", "torchrun": "-m torch.distributed.run"}.items():
        (folder / name).write_text(f'{prefix} {module} "$@"\n')
        (folder / name).chmod(0o755)


def alignfuse(words: list[str], folder: Path) -> tuple[str, int]:
    """What a command prints on either stream, and its exit code; run in this process."""
    printed = io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        try:
            main(words)
        except SystemExit as end:
            return printed.getvalue(), int(end.code or 0)
    return printed.getvalue(), 0


def console(block: Block, folder: Path) -> None:
    """Runs the commands of a block; each must print what stands under it, and fail where that is an error."""
    for part in block.text.removeprefix("$ ").split("\n$ "):
        command, _, expected = part.partition("\n")
        words = shlex.split(command)
        assert words[0] == "alignfuse", f"line {block.line}: {command}"
        output, code = alignfuse(words[1:], folder)
        assert code == (2 if expected.startswith("error: ") else 0), f"{command}\nended with {code}:\n{output}"
        assert missing(expected, output) == [], f"{command}\nprinted:\n{output}"
