# SPDX-License-Identifier: Apache-2.0
"""What NVML answers on the healthy machine: the fake library's document, with our addresses."""

from fakenvml import healthy_h100

from fakenode.driver import VBIOS, uuid_of
from fakenode.layout import gpu_addresses
from fakenode.values import Answers


def nvml_document() -> Answers:
    """A document of schema gpuaudit.nvml/1."""
    document = healthy_h100(len(gpu_addresses()))
    document["binding"] = "13.615.71"
    for index, address in enumerate(gpu_addresses()):
        answers = document["devices"][index]
        answers["nvmlDeviceGetUUID"] = {"v": uuid_of(index)}
        answers["nvmlDeviceGetVbiosVersion"] = {"v": VBIOS.upper()}
        bus = {"busId": f"0000{address.upper()}", "bus": int(address[5:7], 16)}
        answers["nvmlDeviceGetPciInfo"]["v"] |= bus
    return document
