"""What tests of the whole product share: folders of images, packed datasets, daemons, and Python in processes of its own."""

import io
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]


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


def make_image(rng, width, height):
    """A picture with edges, gradients and noise, so that wrong pixels show."""
    from PIL import Image, ImageDraw

    noise = Image.frombytes("RGB", (width, height), rng.randbytes(3 * width * height))
    coarse = Image.frombytes("RGB", (4, 4), rng.randbytes(48)).resize((width, height), Image.Resampling.BICUBIC)
    image = Image.blend(coarse, noise, 0.15)
    draw = ImageDraw.Draw(image)
    for _ in range(4):
        x, y = rng.randrange(width), rng.randrange(height)
        colour = tuple(rng.randrange(256) for _ in range(3))
        draw.ellipse((x, y, x + width // 3, y + height // 4), fill=colour)
    return image


def encode(image, number):
    """The image as a file of one of several kinds, and the file's suffix."""
    from PIL import Image

    out, kind = io.BytesIO(), number % 10
    exif = Image.Exif()
    if kind == 8:
        exif[0x0112] = 1 + number // 10 % 8
    if kind == 9:
        image.save(out, "PNG")
        return out.getvalue(), ".png"
    if kind == 6:
        image = image.convert("L")
    options = {"quality": (75, 90, 96)[number % 3], "exif": exif}
    if kind not in (6,):
        options["subsampling"] = ("4:4:4", "4:2:0", "4:2:2")[number % 3]
    image.save(out, "JPEG", progressive=kind == 7, **options)
    return out.getvalue(), ".JPEG" if number % 2 else ".jpg"


def fill_folder(root, classes, per_class, smallest=40, largest=120, seed=1):
    """An ImageFolder of mixed kinds of files. Returns {name below root: bytes}."""
    files = {}
    rng = random.Random(seed)
    for number in range(classes * per_class):
        image = make_image(rng, rng.randint(smallest, largest), rng.randint(smallest, largest))
        data, suffix = encode(image, number)
        name = f"class{number % classes:02}/{number:05}{suffix}"
        path = Path(root) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        files[name] = data
    return files


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


class Daemon:
    """`headrace serve` as a process of the test."""

    def __init__(self, executable, root, socket, *arguments):
        self.socket = str(socket)
        command = [executable, "serve", "--data", str(root), "--socket", self.socket, *arguments]
        self.log = open(self.socket + ".log", "ab")
        self.process = subprocess.Popen(command, stdout=self.log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        wait_until(lambda: os.path.exists(self.socket) or self.process.poll() is not None, 20, "the daemon's socket")
        assert self.process.poll() is None, Path(self.socket + ".log").read_text()

    @property
    def pid(self):
        return self.process.pid

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        """SIGTERM; returns the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=20)

    def end(self):
        if self.process.poll() is None:
            self.kill()
        self.log.close()


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


def wait_until(condition, seconds, what):
    """Waits for something that must come; how long it takes is not what is tested."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come within {seconds} s"
        time.sleep(0.01)


class Script:
    """A Python program of the test's, running in a process of its own."""

    def __init__(self, path, arguments, environment, launcher=()):
        command = [sys.executable, *launcher, str(path), *map(str, arguments)]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
            env={**os.environ, **environment}, start_new_session=True)  # fmt: skip

    @property
    def pid(self):
        return self.process.pid

    def line(self):
        """The next line of its output."""
        line = self.process.stdout.readline()
        assert line, f"the script ended: {self.process.communicate(timeout=60)[1]}"
        return line.rstrip("\n")

    def finish(self, timeout=180):
        """Waits for its end, which must be a success; returns the rest of its output."""
        out, err = self.process.communicate(timeout=timeout)
        assert self.process.returncode == 0, f"status {self.process.returncode}\n{out}\n{err}"
        return out

    def end(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        for stream in (self.process.stdout, self.process.stderr):
            stream.close()


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
