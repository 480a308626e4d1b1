"""Numbers as protobuf writes them: seven bits a byte, the lowest first; the highest bit of a byte says that more follow."""


def varint(value: int) -> bytes:
    """Write a number that is not negative."""
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)
