# SPDX-License-Identifier: Apache-2.0
"""GPUDirect Storage: version and configuration."""

from pathlib import Path

import pytest
from trees import make_host

from gpuaudit.facts.base import Absent
from gpuaudit.facts.gpudirectstorage import GpuDirectStorage, gpudirect_storage

OWN = """\
{
    // NOTE : Application can override custom configuration via export CUFILE_ENV_PATH_JSON=<path>
    "logging": {
        // log directory, if not enabled will create log file under current working directory
        //"dir": "/home/<xxxx>",
        "level": "ERROR" /* ERROR|WARN */
    },
    "properties": {
        "allow_compat_mode": true,
        "force_compat_mode": false,
        "use_pci_p2pdma": true,
        "rdma_dev_addr_list": ["10.0.0.1", ],
        "url": "nfs://filer//x",
    },
    "denylist": {"drivers": []}
}
"""


def read(folder: Path, text: str | None) -> GpuDirectStorage:
    tree = {"/proc/driver/nvidia-fs/version": "version: 2.25\n"}
    return gpudirect_storage(
        make_host(folder, tree | ({"/etc/cufile.json": text} if text is not None else {}))
    )


def test_the_file_with_comments(tmp_path: Path) -> None:
    found = read(tmp_path, OWN)
    assert found.version == "version: 2.25"
    assert found.config == {
        "properties.allow_compat_mode": True,
        "properties.force_compat_mode": False,
        "properties.use_pci_p2pdma": True,
    }


@pytest.mark.parametrize("text", ["", "{", '{"properties": {', "[1]", "nonsense", '"\\'])
def test_a_file_that_is_no_json(tmp_path: Path, text: str) -> None:
    found = read(tmp_path, text).config
    assert isinstance(found, Absent)
    assert found.reason.startswith("/etc/cufile.json is no JSON")


def test_nothing_is_installed(tmp_path: Path) -> None:
    assert gpudirect_storage(make_host(tmp_path, {})) == GpuDirectStorage(version=None, config=None)


def test_a_recording_without_it_proves_nothing(tmp_path: Path) -> None:
    found = gpudirect_storage(make_host(tmp_path, {"/etc/hostname": "x"}, source="plain"))
    assert isinstance(found.version, Absent)
    assert isinstance(found.config, Absent)


def test_an_image_has_the_configuration_alone(tmp_path: Path) -> None:
    found = gpudirect_storage(make_host(tmp_path, {"/etc/cufile.json": "{}"}, source="image"))
    assert isinstance(found.version, Absent)
    assert found.version.kind == "unsupported"
    assert found.config == {}
