"""What the conformance tests share: the tool that runs the C++ stages, and the folder of test images."""

import json
import os
import pathlib
import subprocess

import numpy as np
import pytest


class RenderTool:
    """Runs commands of tests/support/render_tool.h, one after another in one process."""

    def __init__(self, path, folder):
        self._out = os.path.join(folder, "pixels")
        self._errors = pathlib.Path(folder, "errors")
        with open(self._errors, "wb") as errors:
            self._process = subprocess.Popen(
                [path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, encoding="utf-8"
            )

    def ask(self, **request):
        """The answer as a dict; `ok` says whether it worked, `error` why not."""
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the render tool died of {request} (status {self._process.wait()})")
        return json.loads(line)

    def pixels(self, **request):
        """(answer, bytes) of a command that writes pixels; no bytes when it failed."""
        answer = self.ask(out=self._out, **request)
        return answer, np.fromfile(self._out, dtype=np.uint8) if answer["ok"] else None

    def close(self):
        self._process.stdin.close()
        self._process.stdout.close()
        status = self._process.wait()
        assert self._errors.read_text() == "", "libraries speak through the status, never on standard error"
        return status


@pytest.fixture(scope="session")
def render_tool(tmp_path_factory):
    path = os.environ.get("HEADRACE_RENDER_TOOL")
    if not path:
        raise RuntimeError("HEADRACE_RENDER_TOOL must name the built headrace_render_tool")
    tool = RenderTool(path, tmp_path_factory.mktemp("render"))
    yield tool
    assert tool.close() == 0


def _data_folder():
    named = os.environ.get("HEADRACE_TEST_DATA")
    beside = pathlib.Path(__file__).resolve().parents[3] / "shared" / "data"
    return pathlib.Path(named) if named else beside


@pytest.fixture(scope="session")
def photos():
    """Paths of the photographs; an empty list where the folder is not there."""
    return sorted(_data_folder().glob("photos/*/*.JPEG"))


@pytest.fixture(scope="session")
def odd_folder():
    """The folder of odd files, which need not exist."""
    return _data_folder() / "odd"
