#!/usr/bin/env python3
"""Holds the arrows between the rooms of src/: which room's headers a room may include.

Reads the #include "..." lines and fails on one that isn't in the table, on a header of a room that
is not its door, and on a system header that belongs to another room. The table is the design; a
new arrow is a decision, not an accident.
"""

import pathlib
import re
import sys

ROOMS = {
    "core": set(),
    "image": {"core"},
    "weights": {"core"},
    "net": {"core"},
    "cpu": {"core", "net"},
    "models": {"core", "net", "weights"},
    "api": {"core", "image", "weights", "net", "cpu", "models"},
    "hub": {"core"},
    "package": {"core"},
    "server": {"core", "hub"},
    "cli": {"core", "hub", "package", "server"},
}

# Libraries with a home: no other room includes their headers.
HOMES = {
    r"jpeglib\.h|jerror\.h|spng\.h|webp/.*": {"image"},
    r"zlib\.h": {"weights", "image"},
    r"microhttpd\.h": {"server"},
    r"json-c/.*|json\.h": {"server", "hub", "package", "cli"},
    r"yaml\.h": {"package"},
    r"curl/.*": {"hub", "cli"},
    r"openssl/.*": {"server", "hub"},
    r"immintrin\.h|.mmintrin\.h|arm_neon\.h": {"cpu", "image"},
}


def check_file(path, room, root):
    problems = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        where = f"{path.relative_to(root)}:{number}"
        ours = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
        system = re.match(r"\s*#\s*include\s+<([^>]+)>", line)
        if ours:
            name = ours.group(1)
            if name == "tapetum.h":
                continue
            other, _, header = name.rpartition("/")
            if other == "" or other == room:
                target = root / "src" / room / header
                if not target.exists():
                    problems.append(f"{where}: {name} is not in src/{room}")
            elif other not in ROOMS[room]:
                problems.append(f"{where}: {room} may not include {other}")
            elif header != f"{other}.h":
                problems.append(f"{where}: {header} is private to {other}; its door is {other}.h")
        if system:
            for pattern, homes in HOMES.items():
                if re.fullmatch(pattern, system.group(1)) and room not in homes:
                    problems.append(
                        f"{where}: <{system.group(1)}> belongs to {', '.join(sorted(homes))}"
                    )
    return problems


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    problems = []
    n_files = 0
    for path in sorted((root / "src").rglob("*.[ch]")):
        room = path.relative_to(root / "src").parts[0]
        if room not in ROOMS:
            problems.append(f"{path.relative_to(root)}: no such room; add it to {__file__}")
            continue
        problems += check_file(path, room, root)
        n_files += 1
    print("\n".join(problems + [f"{n_files} files, {len(problems)} wrong includes"]))
    return 1 if problems or n_files == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
