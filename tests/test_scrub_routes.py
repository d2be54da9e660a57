# SPDX-License-Identifier: Apache-2.0
"""The routing table of a scrubbed recording: other networks, the same shape."""

from gpuaudit.snapshot.disguise import Disguise
from gpuaudit.snapshot.scrub import without_peculiar

PATH = "/proc/1385/net/route"
TABLE = (
    b"Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\n"
    b"eno1\t00000000\t0101A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n"
    b"rail0\t000A640A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
    b"rail1\t000A640A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
    b"rail2\t000B640A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
)


def rows(text: bytes) -> list[list[bytes]]:
    return [line.split(b"\t") for line in text.splitlines()]


def test_networks_are_others_and_masks_are_not() -> None:
    before, after = rows(TABLE), rows(without_peculiar(TABLE, PATH, Disguise()))
    for column in (0, 3, 4, 5, 6, 7):
        assert [row[column] for row in before] == [row[column] for row in after]
    for address in (b"0101A8C0", b"000A640A", b"000B640A"):
        assert address not in {row[1] for row in after} | {row[2] for row in after}


def test_what_shares_a_network_still_does() -> None:
    _, default, one, other, apart = rows(without_peculiar(TABLE, PATH, Disguise()))
    assert default[1] == b"00000000"
    assert one[1] == other[1] != apart[1]
    assert one[1].startswith(b"00")


def test_an_address_is_the_same_as_in_a_text() -> None:
    disguise = Disguise()
    _, default, *_ = rows(without_peculiar(TABLE, PATH, disguise))
    octets = bytes.fromhex(default[2].decode())[::-1]
    assert disguise.ip4("192.168.1.1") == ".".join(map(str, octets))
