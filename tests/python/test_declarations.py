"""A C compiler compares the declarations for ctypes with the header."""

import ctypes
import os
import pathlib
import re
import subprocess

from tapetum import _library, errors

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCALARS = {
    ctypes.c_int: "int", ctypes.c_int32: "int32_t", ctypes.c_uint8: "uint8_t",
    ctypes.c_uint32: "uint32_t", ctypes.c_uint64: "uint64_t", ctypes.c_size_t: "size_t",
    ctypes.c_float: "float", ctypes.c_double: "double", ctypes.c_bool: "bool",
    ctypes.c_char_p: "char *", ctypes.c_void_p: "void *", None: "void",
}  # fmt: skip


def c_type(kind):
    if kind in SCALARS:
        return SCALARS[kind]
    if issubclass(kind, ctypes.Structure):
        return kind.c_name
    return f"{c_type(kind._type_)} *"


def c_source():
    lines = ['#include "tapetum.h"', '#include <stddef.h>']

    def claim(what):
        lines.append(f'_Static_assert({what}, "{what}");')

    for name, value in _library.CONSTANTS.items():
        claim(f"{name} == {value}")
    for struct in _library.STRUCTS:
        claim(f"sizeof({struct.c_name}) == {ctypes.sizeof(struct)}")
        for name, kind in struct._fields_:
            field = getattr(struct, name)
            claim(f"offsetof({struct.c_name}, {name}) == {field.offset}")
            claim(f"sizeof((({struct.c_name} *)0)->{name}) == {field.size}")
            if kind in (ctypes.c_float, ctypes.c_double):
                claim("__builtin_types_compatible_p(__typeof__("
                      f"(({struct.c_name} *)0)->{name}), {c_type(kind)})")
    declared = {name: (ctypes.c_int, kinds) for name, kinds in _library.FALLIBLE.items()}
    for name, (result, kinds) in (declared | _library.PLAIN).items():
        names = [f"a{i}" for i in range(len(kinds))]
        parameters = ", ".join(f"{c_type(k)} {n}" for k, n in zip(kinds, names)) or "void"
        lines.append(f"void use_{name}({parameters});\nvoid use_{name}({parameters})\n{{")
        call = f"{name}({', '.join(names)})"
        if result is None:
            lines.append(f"    {call};\n}}")
        elif result is ctypes.c_char_p:
            lines.append(f"    const char *result = {call};\n    (void)result;\n}}")
        else:
            lines.append(f"    {c_type(result)} result = {call};\n    (void)result;\n}}")
    return "\n".join(lines) + "\n"


def compile_c(source):
    compiler = os.environ.get("CC", "cc")
    return subprocess.run(
        [compiler, "-std=c17", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-fsyntax-only",
         "-I", ROOT / "include", "-x", "c", "-"],
        input=source, text=True, capture_output=True)


def test_declarations_are_the_headers():
    result = compile_c(c_source())
    assert result.returncode == 0, result.stderr


def test_wrong_declarations_would_be_seen():
    good = c_source()
    for old, new in ((r"offsetof\(tap_hand_view, cam\) == \d+", "offsetof(tap_hand_view, cam) == 1"),
                     ("void use_tap_hands_at\\(tap_hands \\*", "void use_tap_hands_at(tap_model *"),
                     ("TAP_GRAY_LUMA == 1", "TAP_GRAY_LUMA == 2")):
        bad, n = re.subn(old, new, good)
        assert n >= 1 and compile_c(bad).returncode != 0


def test_structs_have_all_of_the_headers_fields():
    """A field appended in C but not here would be lost without a word."""
    header = (ROOT / "include" / "tapetum.h").read_text()
    header = re.sub(r"/\*.*?\*/", "", header, flags=re.S)
    for struct in _library.STRUCTS:
        body = re.search(rf"typedef struct {struct.c_name} \{{(.*?)\}} {struct.c_name};", header,
                         re.S).group(1)
        fields = [re.sub(r"\[.*?\]|\W", "", name) for line in body.split(";") if line.strip()
                  for name in re.sub(r"^\s*(const\s+)?\w+\s", "", line).split(",")]
        assert fields == [name for name, _ in struct._fields_], struct.c_name


def test_every_status_has_its_exception():
    header = (ROOT / "include" / "tapetum.h").read_text()
    codes = {int(code): name for name, code in re.findall(r"(TAP_ERR_\w+) = (\d+)", header)}
    assert {code: kind.status for code, kind in errors.BY_CODE.items()} == codes
