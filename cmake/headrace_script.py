#!python
"""Runs the `headrace` executable that lies in the installed package. Imports nothing, so it costs little."""
import os
import sys

for directory in sys.path[1:] + sys.path[:1]:
    executable = os.path.join(directory, "headrace", "bin", "headrace")
    if os.access(executable, os.X_OK):
        os.execv(executable, ["headrace", *sys.argv[1:]])
sys.exit("headrace: the executable is missing from this Python's packages; install the wheel again")
