"""What tests of the whole product share: folders of images, packed datasets, daemons, and Python in processes of its own."""

import os
import random
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).with_name("support")))

from image_files import fill_folder, make_image  # noqa: E402
from processes import Daemon, Script  # noqa: E402


@pytest.fixture(scope="session", autouse=True)
def own_runtime_folder(tmp_path_factory):
    """No daemon of this machine is met by accident: the default path is in an empty folder of the test run."""
    os.environ["XDG_RUNTIME_DIR"] = str(tmp_path_factory.mktemp("runtime"))
    os.environ.pop("HEADRACE_SOCKET", None)


@pytest.fixture(scope="session")
def executable():
    """The built `headrace`: $HEADRACE_EXECUTABLE, else the installed wheel's."""
    from headrace import _library

    path = _library.executable_path()
    assert path, "no headrace executable: install the wheel or set HEADRACE_EXECUTABLE"
    return path


@pytest.fixture(scope="session")
def image_folder(tmp_path_factory):
    """131 images in 7 classes: no batch size used in the tests divides it."""
    root = tmp_path_factory.mktemp("images")
    fill_folder(root, 7, 18)
    extra = make_image(random.Random(5), 77, 50)
    for i in range(5):
        extra.save(root / "class03" / f"extra{i}.jpg", quality=80 + i)
    return root


@pytest.fixture(scope="session")
def data_folder():
    """The folder of test images, which need not exist."""
    named = os.environ.get("HEADRACE_TEST_DATA")
    return Path(named) if named else Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def photos(data_folder):
    """Paths of the photographs; an empty list where the folder is not there."""
    return sorted(data_folder.glob("photos/*/*.JPEG"))


@pytest.fixture(scope="session")
def pack(executable):
    """pack(source, destination, *arguments): runs `headrace pack`, which must succeed."""

    def run(source, destination, *arguments):
        command = [executable, "pack", *map(str, arguments), str(source), str(destination)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        return str(destination)

    return run


@pytest.fixture(scope="session")
def dataset(image_folder, pack, tmp_path_factory):
    """Path of the packed image_folder."""
    return pack(image_folder, tmp_path_factory.mktemp("packed") / "dataset")


@pytest.fixture
def start_daemon(executable, tmp_path):
    """start_daemon(root, *arguments, socket=None): a running daemon, killed at the end of the test."""
    daemons = []

    def start(root, *arguments, socket=None):
        socket = socket or tmp_path / f"daemon{len(daemons)}.sock"
        daemons.append(Daemon(executable, root, socket, *arguments))
        return daemons[-1]

    yield start
    for daemon in daemons:
        daemon.end()


@pytest.fixture
def script(tmp_path):
    """script(code, *arguments, env={}, torchrun=N): starts it (under torchrun with N ranks), ended with the test."""
    scripts = []

    def start(code, *arguments, env=None, torchrun=0):
        path = tmp_path / f"script{len(scripts)}.py"
        path.write_text(textwrap.dedent(code))
        launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(torchrun)) if torchrun else ()
        environment = {"OMP_NUM_THREADS": "1", **(env or {})}
        scripts.append(Script(path, arguments, environment, launcher))
        return scripts[-1]

    yield start
    for one in scripts:
        one.end()
