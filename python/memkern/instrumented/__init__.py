"""C that is linked with instrumented code, and a program that stands for the compilers."""

from pathlib import Path

FOLDER = Path(__file__).parent
