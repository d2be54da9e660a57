# SPDX-License-Identifier: Apache-2.0
"""The policy files that come with the package, without the 5 ms that importlib.resources takes."""

import os
import pkgutil

PACKAGE = "gpuaudit.policy"


def read_built_in(name: str) -> bytes:
    """The bytes of a file of this package, from a folder or a zip archive."""
    data = pkgutil.get_data(PACKAGE, name)
    if data is None:
        raise FileNotFoundError(name)
    return data


def sku_files() -> list[str]:
    """Names of the SKU files, `skus/a100.yaml` and so on, in name order."""
    folder = os.path.join(os.path.dirname(__file__), "skus")
    if os.path.isdir(folder):
        names = os.listdir(folder)
    else:  # inside a zip archive
        from importlib import resources

        names = [entry.name for entry in (resources.files(PACKAGE) / "skus").iterdir()]
    return [f"skus/{name}" for name in sorted(names) if name.endswith(".yaml")]
