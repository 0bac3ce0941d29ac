"""The tree keeps its direction of dependencies, and the check sees it when it does not."""

import importlib.util
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
_spec = importlib.util.spec_from_file_location("check_includes", ROOT / "tools" / "check_includes.py")
check_includes = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(check_includes)


def test_the_tree_is_in_order():
    assert check_includes.check(ROOT) == []


@pytest.mark.parametrize(
    ("file", "header"),
    [
        ("core/shard/a.h", "core/read/sample_reader.h"),  # against the data's way
        ("core/decode/a.cc", "server/service.h"),
        ("client/a.cc", "core/base/status.h"),
        ("client/a.cc", "absl/status/status.h"),
        ("client/a.cc", "nlohmann/json.hpp"),
        ("core/shard/a.cc", "lmdb.h"),  # outside its leaf
        ("server/a.cc", "grpcpp/server.h"),
        ("server/rpc/a.cc", "boost/asio.hpp"),
        ("core/base/a.h", "nlohmann/json.hpp"),
        ("packer/a.cc", "core/pipeline/pipeline.h"),
        ("core/read/a.cc", "liburing.h"),  # a library that nobody has agreed on
    ],
)
def test_an_include_out_of_order_is_named(tmp_path, file, header):
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.write_text(f'#pragma once\n#include "{header}"\n')
    (problem,) = check_includes.check(tmp_path)
    assert problem.startswith(f"{file}:2: ")


@pytest.mark.parametrize(
    ("file", "header"),
    [
        ("core/read/a.h", "core/shard/dataset.h"),
        ("core/read/a.h", "core/read/b.h"),
        ("client/a.cc", "core/slot/slot_layout.h"),
        ("core/shard/lmdb/a.cc", "lmdb.h"),
        ("core/shard/a.cc", "nlohmann/json.hpp"),
        ("server/loop/a.cc", "boost/asio.hpp"),
        ("core/base/a.cc", "sys/socket.h"),
        ("core/base/a.cc", "vector"),
    ],
)
def test_an_include_in_order_passes(tmp_path, file, header):
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.write_text(f'#pragma once\n#include "{header}"\n')
    assert check_includes.check(tmp_path) == []


def test_a_header_without_guard_is_named(tmp_path):
    (tmp_path / "core" / "base").mkdir(parents=True)
    (tmp_path / "core" / "base" / "a.h").write_text("int x;\n")
    assert check_includes.check(tmp_path) == ["core/base/a.h:1: no #pragma once"]
