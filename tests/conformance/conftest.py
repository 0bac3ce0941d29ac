"""What the conformance tests share: the tools that run the C++ stages."""

import json
import os
import pathlib
import subprocess

import numpy as np
import pytest
import torch


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


_TOOL = pathlib.Path(os.environ.get("HEADRACE_RENDER_TOOL", "unset")).absolute()
_GPU_FOLDER = _TOOL.parents[1] / "gpu"


@pytest.fixture(scope="session")
def render_tool(tmp_path_factory):
    if not _TOOL.exists():
        raise RuntimeError("HEADRACE_RENDER_TOOL must name the built headrace_render_tool")
    tool = RenderTool(_TOOL, tmp_path_factory.mktemp("render"))
    yield tool
    assert tool.close() == 0


# What the GPU does, done on the host; and a GPU, where there is one and its tool was built.
_GPU_TOOLS = ["host"]
if torch.cuda.is_available() and (_GPU_FOLDER / "headrace_render_tool_gpu").exists():
    _GPU_TOOLS.append("gpu")


@pytest.fixture(scope="session", params=["cpu", *_GPU_TOOLS])
def engine(request, render_tool, tmp_path_factory):
    """A render tool whose samples are made by each engine in turn; `name` is that of the engine."""
    if request.param == "cpu":
        render_tool.name = "cpu"
        yield render_tool
        return
    tool = RenderTool(_GPU_FOLDER / f"headrace_render_tool_{request.param}", tmp_path_factory.mktemp(request.param))
    tool.name = "gpu"
    yield tool
    assert tool.close() == 0


@pytest.fixture(scope="session")
def odd_folder(data_folder):
    """The folder of odd files, which need not exist."""
    return data_folder / "odd"
