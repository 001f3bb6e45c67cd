"""What programs and shared libraries (64 bits, little endian) ask of the loader: run paths, libraries, versions."""
import struct

PROGRAM, SHARED = 2, 3  # e_type
LOAD, DYNAMIC, INTERPRETER = 1, 2, 3  # p_type
NEEDED, STRINGS, OLD_RUN_PATH, RUN_PATH = 1, 5, 15, 29  # d_tag
VERSIONS, NUM_VERSIONS = 0x6FFFFFFE, 0x6FFFFFFF


def is_elf(path):
    """Whether a file is a program or a shared library."""
    with open(path, "rb") as file:
        head = file.read(18)
    return head[:6] == b"\x7fELF\2\1" and struct.unpack_from("<H", head, 16)[0] in (PROGRAM, SHARED)


def cut(data, offset):
    return data[offset:data.index(b"\0", offset)].decode()


class Elf:
    """`run_paths`, `needed` and `versions`, as they appear in the file."""

    def __init__(self, data):
        self.data, self.run_paths, self.needed, self.versions = data, [], [], []
        self.run_path_offsets = []
        start, size, count = struct.unpack_from("<Q", data, 32)[0], *struct.unpack_from("<HH", data, 54)
        segments = [struct.unpack_from("<IIQQQQ", data, start + i * size) for i in range(count)]
        self.loads = [(address, offset, length) for kind, _, offset, address, _, length in segments if kind == LOAD]
        for kind, _, offset, _, _, length in segments:
            if kind == INTERPRETER:
                self.needed.append(cut(data, offset))
            if kind == DYNAMIC:
                self.read([struct.unpack_from("<qQ", data, offset + at) for at in range(0, length, 16)])

    def offset_of(self, address):
        return next((address - a + offset for a, offset, length in self.loads if a <= address < a + length), 0)

    def read(self, entries):
        values = dict(entries)
        strings = self.offset_of(values.get(STRINGS, 0))
        for tag, value in entries:
            if tag in (OLD_RUN_PATH, RUN_PATH):
                self.run_paths.append(cut(self.data, strings + value))
                self.run_path_offsets.append(strings + value)
            if tag == NEEDED:
                self.needed.append(cut(self.data, strings + value))
        at = self.offset_of(values.get(VERSIONS, 0))
        for _ in range(values.get(NUM_VERSIONS, 0)):
            _, count, _, first, following = struct.unpack_from("<HHIII", self.data, at)
            version = at + first
            for _ in range(count):
                name, step = struct.unpack_from("<II", self.data, version + 8)
                self.versions.append(cut(self.data, strings + name))
                version += step
            at += following

    def with_run_path(self, run_path):
        """The file with another run path in the place of its own, which has to be as long."""
        if len(self.run_paths) != 1 or len(run_path) > len(self.run_paths[0]):
            raise ValueError(f"no room for the run path {run_path}: the file has {self.run_paths}")
        at, room = self.run_path_offsets[0], len(self.run_paths[0])
        return self.data[:at] + run_path.encode().ljust(room, b"\0") + self.data[at + room:]
