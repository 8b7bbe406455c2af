#!/usr/bin/env python3
"""Makes a program (ELF, x86-64, PIE) take its dynamic loader and its libraries from paths relative to itself.

    packaging/tarball/graft.py PROGRAM LOADER.elf --loader ../lib/ld.so --libraries '$ORIGIN/../lib' [--first LIBRARY]

Appends the code of packaging/tarball/loader.c to PROGRAM as one more segment, in the header of a note, and makes it the entry. PT_INTERP becomes PT_NULL,
which that code reverts in memory. DT_RPATH takes the place of DT_DEBUG. `--first` adds a library before the others, so that its functions come first.
To be done after `strip`. Fails if the program has no place for one of these.
"""

import argparse
import struct
from pathlib import Path

PAGE = 4096
PT_NULL, PT_LOAD, PT_DYNAMIC, PT_INTERP, PT_NOTE = 0, 1, 2, 3, 4
DT_NULL, DT_NEEDED, DT_STRTAB, DT_RPATH, DT_DEBUG = 0, 1, 5, 15, 21
HEADER = struct.Struct("<IIQQQQQQ")
TAG = struct.Struct("<QQ")


class Elf:
    def __init__(self, data: bytes):
        self.data = bytearray(data)
        if self.data[:6] != b"\x7fELF\x02\x01" or struct.unpack_from("<HH", self.data, 16) != (3, 62):
            raise SystemExit("error: not a position-independent program for x86-64")
        (self.entry, self.table) = struct.unpack_from("<QQ", self.data, 24)
        (self.count,) = struct.unpack_from("<H", self.data, 56)

    def headers(self) -> list[list[int]]:
        return [list(HEADER.unpack_from(self.data, self.table + i * HEADER.size)) for i in range(self.count)]

    def put_header(self, index: int, header: list[int]) -> None:
        HEADER.pack_into(self.data, self.table + index * HEADER.size, *header)

    def last(self, kind: int) -> int:
        found = [index for index, header in enumerate(self.headers()) if header[0] == kind]
        if not found:
            raise SystemExit(f"error: the program has no header of the type {kind}")
        return found[-1]


def symbol(elf: Elf, name: str) -> int:
    """The address of a symbol of LOADER.elf."""
    (sections,) = struct.unpack_from("<Q", elf.data, 40)
    (size, count) = struct.unpack_from("<HH", elf.data, 58)
    rows = [struct.unpack_from("<IIQQQQIIQQ", elf.data, sections + i * size) for i in range(count)]
    for row in rows:
        if row[1] == 2:
            names = rows[row[6]][4]
            for at in range(row[4], row[4] + row[5], 24):
                (text, _, _, _, value, _) = struct.unpack_from("<IBBHQQ", elf.data, at)
                end = elf.data.index(0, names + text)
                if elf.data[names + text : end].decode() == name:
                    return value
    raise SystemExit(f"error: the loader's code has no symbol {name}")


def code_of(path: Path) -> tuple[bytearray, int]:
    """The bytes of its one section, and where in them it begins."""
    data = path.read_bytes()
    elf = Elf(data[:16] + struct.pack("<HH", 3, 62) + data[20:])
    (sections,) = struct.unpack_from("<Q", elf.data, 40)
    (size, count) = struct.unpack_from("<HH", elf.data, 58)
    for i in range(count):
        row = struct.unpack_from("<IIQQQQIIQQ", elf.data, sections + i * size)
        if row[1] == 1 and row[2] & 2:
            return elf.data[row[4] : row[4] + row[5]], symbol(elf, "_start")
    raise SystemExit(f"error: {path} has no code")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("program", type=Path)
    parser.add_argument("code", type=Path)
    parser.add_argument("--loader", required=True)
    parser.add_argument("--libraries", required=True)
    parser.add_argument("--first")
    options = parser.parse_args()

    elf = Elf(options.program.read_bytes())
    code, start = code_of(options.code)
    headers = elf.headers()
    address = max(header[3] + header[6] for header in headers if header[0] == PT_LOAD)
    address = (address + PAGE - 1) // PAGE * PAGE
    offset = (len(elf.data) + PAGE - 1) // PAGE * PAGE

    loader = options.loader.encode()
    if len(loader) >= 240:
        raise SystemExit("error: the loader's path is too long")
    struct.pack_into("<QQ240s", code, 0, address, elf.entry, loader)
    strings = address + len(code)
    first = options.first.encode() + b"\0" if options.first else b""
    code += first + options.libraries.encode() + b"\0"

    note = elf.last(PT_NOTE)
    if any(header[0] == PT_LOAD for header in headers[note:]):
        raise SystemExit("error: a segment comes behind the notes")
    interpreter = elf.last(PT_INTERP)
    elf.put_header(interpreter, [PT_NULL, *headers[interpreter][1:]])
    elf.put_header(note, [PT_LOAD, 5, offset, address, address, len(code), len(code), PAGE])
    struct.pack_into("<Q", elf.data, 24, address + start)

    dynamic = headers[elf.last(PT_DYNAMIC)]
    places = range(dynamic[2], dynamic[2] + dynamic[5], TAG.size)
    tags = [TAG.unpack_from(elf.data, at) for at in places]
    used = [tag for tag in tags if tag[0] != DT_NULL]
    table = next(value for tag, value in used if tag == DT_STRTAB)
    rest = [tag for tag in used if tag[0] not in (DT_DEBUG, DT_RPATH)]
    new = [(DT_NEEDED, strings - table)] if first else []
    new += [*rest, (DT_RPATH, strings + len(first) - table)]
    if len(new) >= len(tags):
        raise SystemExit("error: the program's dynamic section has no place for another entry")
    new += [(DT_NULL, 0)] * (len(tags) - len(new))
    for at, tag in zip(places, new):
        TAG.pack_into(elf.data, at, *tag)

    elf.data += bytes(offset - len(elf.data)) + code
    options.program.write_bytes(elf.data)


if __name__ == "__main__":
    main()
