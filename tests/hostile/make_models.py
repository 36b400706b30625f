#!/usr/bin/env python3
"""make_models.py FOLDER: bad model files, and FOLDER/list.txt: a line each of name, status, and
words that the message must hold, with tabs between. Standard library only."""
import collections
import gzip
import io
import os
import pathlib
import pickle
import struct
import sys
import tarfile
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "weights"))
import torchfile  # noqa: E402
from torchfile import Storage, Tensor, Zip  # noqa: E402

FORMAT, LIMIT, UNSUPPORTED = "TAP_ERR_FORMAT", "TAP_ERR_LIMIT", "TAP_ERR_UNSUPPORTED"
ARGUMENT, NOT_FOUND, IO = "TAP_ERR_ARGUMENT", "TAP_ERR_NOT_FOUND", "TAP_ERR_IO"
BAD = []


def bad(name, content, status, words):
    BAD.append((name, content, status, words))


# ---- not weights at all ---------------------------------------------------------------------

LFS = (b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"5e1d" * 16 +
       b"\nsize 5206086\n")


def wrong_files():
    for name in ("model.safetensors", "superpoint_v1.pth", "pytorch_model.bin", "last.ckpt"):
        bad(f"lfs_{name}", LFS, FORMAT, f"Git LFS pointer ({len(LFS)} bytes) for sha256:5e1d")
    bad("lfs_size", LFS, FORMAT, "of 5206086 bytes")
    bad("lfs_cut", LFS[:30], FORMAT, "Git LFS pointer")
    bad("html", b"<!DOCTYPE html>\n<html><head><title>Sign in</title>", FORMAT, "HTML")
    bad("html_space", b"\xef\xbb\xbf\r\n  <HTML lang=en>", FORMAT, "HTML")
    bad("xml", b'<?xml version="1.0"?><Error><Code>AccessDenied</Code></Error>', FORMAT, "HTML or XML")
    bad("empty", b"", FORMAT, "empty")
    for n in range(1, 16):
        bad(f"zeros_{n}", bytes(n), FORMAT, f"only {n} bytes")
    bad("zeros_4096", bytes(4096), FORMAT, "not a format that is known here")
    bad("gzip", gzip.compress(b"weights" * 30, mtime=0), FORMAT, "gzip")
    bad("bzip2", b"BZh91AY&SY" + bytes(40), FORMAT, "bzip2")
    bad("xz", b"\xfd7zXZ\0" + bytes(40), FORMAT, "xz archive")
    bad("zstd", b"\x28\xb5\x2f\xfd" + bytes(40), FORMAT, "zstd")
    bad("seven_zip", b"7z\xbc\xaf\x27\x1c" + bytes(40), FORMAT, "7-Zip")
    bad("rar", b"Rar!\x1a\x07" + bytes(40), FORMAT, "RAR")
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("storages"), io.BytesIO(b""))
    bad("tar_of_torch_0_1", out.getvalue(), FORMAT, "tar archive")
    bad("json", b'{"error": "Repository not found"}', FORMAT, "JSON text")
    bad("text", b"Entry not found, and no weights either", FORMAT, "plain text")
    bad("npy", b"\x93NUMPY\1\0v\0{'descr': '<f4'", FORMAT, "NumPy array")
    bad("onnx", b"\x08\x07\x12\x07pytorch\x1a\x05" + bytes(40), FORMAT, "ONNX")
    bad("gguf", b"GGUF\3\0\0\0" + bytes(40), FORMAT, "GGUF")
    bad("hdf5", b"\x89HDF\r\n\x1a\n" + bytes(40), FORMAT, "HDF5")
    bad("tflite", b"\x1c\0\0\0TFL3" + bytes(40), FORMAT, "TensorFlow Lite")
    bad("png", b"\x89PNG\r\n\x1a\n" + bytes(40), FORMAT, "PNG")
    bad("jpeg", b"\xff\xd8\xff\xe0" + bytes(40), FORMAT, "JPEG")
    bad("webp", b"RIFF\0\0\0\0WEBP" + bytes(40), FORMAT, "RIFF")
    bad("pdf", b"%PDF-1.7\n\x80" + bytes(40), FORMAT, "PDF")
    bad("elf", b"\x7fELF\2\1\1" + bytes(40), FORMAT, "ELF")


# ---- safetensors ----------------------------------------------------------------------------

def st(header, data=b"", length=None):
    header = header if isinstance(header, bytes) else header.encode()
    return struct.pack("<Q", len(header) if length is None else length) + header + data


def entry(dtype='"F32"', shape="[2]", offsets="[0,8]"):
    return f'{{"dtype":{dtype},"shape":{shape},"data_offsets":{offsets}}}'


def one(data=bytes(8), **fields):
    return st('{"w":' + entry(**fields) + "}", data)


def safetensors():
    def case(name, content, words, status=FORMAT):
        bad(f"st_{name}", content, status, words)

    good = '{"w":' + entry() + "}"
    for name, length in (("2_63", 2 ** 63), ("2_64_1", 2 ** 64 - 1), ("99_mb", 99_000_000),
                         ("5_mb", 5 << 20)):
        case(f"length_{name}", st(good, bytes(8), length), "over our limit", LIMIT)
    case("length_like_pickle", st(good, b"", 0x280), "ends inside its header")
    case("length_over_file", st(good, b"", len(good) + 1), "ends inside its header")
    case("length_cut", st(good)[:20], "download is incomplete")
    case("length_0", struct.pack("<Q", 0) + b"{" + bytes(20), "does not begin with {")
    case("braces", st("{" * 4000), "double quotes")
    case("deep", st('{"w":' * 17 + "1" + "}" * 17), "unknown field")
    case("deep_metadata", st('{"__metadata__":{"a":' + "[" * 100), "not a string")
    case("not_closed", st('{"w":' + entry(), bytes(8)), "ends too early")
    case("trailing_comma", st('{"w":' + entry() + ",}", bytes(8)), "double quotes")
    case("tail_in_header", st(good + "x", bytes(8)), "text after")
    case("two_objects", st(good + "{}", bytes(8)), "text after")
    case("nul_padding", st(good + "\0\0", bytes(8)), "text after")
    case("duplicate", st('{"w":' + entry() + ',"w":' + entry(offsets="[8,16]") + "}", bytes(16)),
         "twice")
    case("duplicate_escaped", st('{"w":' + entry() + ',"\\u0077":' + entry(offsets="[8,16]") + "}",
                                 bytes(16)), "twice")
    case("duplicate_field", st('{"w":{"dtype":"F32","dtype":"F32","shape":[2],'
                               '"data_offsets":[0,8]}}', bytes(8)), "twice")
    case("duplicate_metadata", st('{"__metadata__":{},"__metadata__":{}}'), "twice")
    case("metadata_number", st('{"__metadata__":{"a":1}}'), "not a string")
    case("metadata_list", st('{"__metadata__":[]}'), "not an object")
    case("utf8", st(b'{"\xff":' + entry().encode() + b"}", bytes(8)), "not UTF-8")
    case("utf8_overlong", st(b'{"\xc0\xaf":1}'), "not UTF-8")
    case("utf8_surrogate", st(b'{"\xed\xa0\x80":1}'), "not UTF-8")
    case("surrogate", st('{"\\ud800":1}'), "surrogate")
    case("surrogate_low", st('{"\\udc00":1}'), "surrogate")
    case("surrogate_pair", st('{"\\ud800\\u0041":1}'), "surrogate")
    case("nul_name", st('{"a\\u0000b":1}'), "NUL")
    case("control", st('{"a\nb":1}'), "control character")
    case("escape", st('{"\\x41":1}'), "not an escape")
    case("hex", st('{"\\u12g4":1}'), "hexadecimal")
    case("long_name", st('{"' + "n" * 257 + '":' + entry() + "}", bytes(8)), "257 bytes", LIMIT)
    case("bom", st("\ufeff" + good, bytes(8)), "not a format that is known")
    case("entry_list", st('{"w":[]}'), "not an object")
    case("extra_field", st('{"w":' + entry()[:-1] + ',"x":1}}', bytes(8)), "unknown field")
    case("no_dtype", st('{"w":{"shape":[2],"data_offsets":[0,8]}}', bytes(8)), "no dtype")
    case("no_shape", st('{"w":{"dtype":"F32","data_offsets":[0,8]}}', bytes(8)), "no shape")
    case("no_offsets", st('{"w":{"dtype":"F32","shape":[2]}}', bytes(8)), "no data_offsets")
    case("dtype_number", one(dtype="1"), "dtype is not a string")
    case("dtype_f8", one(dtype='"F8_E4M3"'), "F8_E4M3", UNSUPPORTED)
    case("dtype_case", one(dtype='"f32"'), '"f32" is not read', UNSUPPORTED)
    case("dtype_wider", one(dtype='"F64"'), "take 16 bytes")
    case("shape_negative", one(shape="[-2]"), "whole numbers")
    case("shape_fraction", one(shape="[2.0]"), "whole numbers")
    case("shape_exponent", one(shape="[2e0]"), "whole numbers")
    case("shape_zero_first", one(shape="[02]"), "not a number")
    case("shape_nested", one(shape="[[2]]"), "whole numbers")
    case("shape_string", one(shape='"2"'), "whole numbers")
    case("shape_2_64", one(shape="[18446744073709551616]"), "whole numbers")
    case("shape_overflow", one(shape="[4294967296,4294967296]"), "overflows")
    case("shape_overflow_bytes", one(shape="[4611686018427387904]"), "overflows")
    case("shape_overflow_zero", one(shape="[0,4294967296,4294967296,4294967296]"), "overflows")
    case("rank_9", one(shape="[1,1,1,1,1,1,1,1,2]"), "at most 8")
    case("shape_wrong", one(shape="[3]"), "take 12 bytes")
    case("offsets_three", one(offsets="[0,8,8]"), "two whole numbers")
    case("offsets_one", one(offsets="[0]"), "two whole numbers")
    case("offsets_negative", one(offsets="[-8,0]"), "two whole numbers")
    case("offsets_backwards", one(offsets="[8,0]"), "data_offsets [8, 0]")
    case("offsets_wrap", one(offsets="[18446744073709551608,0]"), "data_offsets")
    case("offsets_short", one(offsets="[0,4]"), "take 8 bytes")
    case("hole_first", one(bytes(16), offsets="[8,16]"), "leaving a hole")
    case("hole", st('{"a":' + entry() + ',"b":' + entry(offsets="[16,24]") + "}", bytes(24)),
         "leaving a hole")
    case("overlap", st('{"a":' + entry() + ',"b":' + entry(offsets="[4,12]") + "}", bytes(12)),
         "overlapping")
    case("same_range", st('{"a":' + entry() + ',"b":' + entry() + "}", bytes(8)), "overlapping")
    many = ",".join(f'"{i}":' + entry() for i in range(4096))
    case("one_range_4096", st("{" + many + "}", bytes(8)), "overlapping")
    many = ",".join(f'"{i}":' + entry(shape="[0]", offsets="[0,0]") for i in range(30000))
    case("tensors_30000", st("{" + many + "}"), "over 4096 tensors", LIMIT)
    case("data_short", one(bytes(7)), "download is incomplete")
    case("data_long", one(bytes(9)), "1 bytes after")
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as polyglot:
        polyglot.writestr("data.pkl", b"payload")
    case("polyglot_zip", one(bytes(8) + out.getvalue()), "after the last tensor")
    case("value_number", st('{"w":1e999}'), "not an object")
    case("word", st('{"w":nul}'), "not a JSON value")


# ---- zip ------------------------------------------------------------------------------------

SMALL = collections.OrderedDict(w=Tensor(Storage("Float", range(6)), (2, 3)))


def zip_of(pickled, storages=None, **options):
    out = Zip(**options).add("a/data.pkl", pickled)
    for key, raw in (storages or {}).items():
        out.add(f"a/data/{key}", raw)
    return out.add("a/version", b"3\n")


def small_zip(data_pkl=None, tensor=None, end=None, between=None, **options):
    """A good one, but for what its members are given."""
    pickled, storages = torchfile.dump(SMALL)
    out = Zip(**options).add("a/data.pkl", pickled, **(data_pkl or {}))
    out.add("a/data/0", storages[0][1].raw, **(tensor or {}))
    if between:
        between(out)
    return out.add("a/version", b"3\n").bytes(**(end or {}))


def zips():
    def case(name, content, words, status=FORMAT):
        bad(f"zip_{name}", content, status, words)

    good = small_zip()
    case("no_directory", good[:-100], "without its directory")
    case("comment", small_zip(end={"comment": b"hello"}), "a comment or another file", UNSUPPORTED)
    case("tail", good + bytes(8), "after the zip's end", UNSUPPORTED)
    case("tail_22", good + b"PK\5\6" + bytes(18), "does not end where")
    case("two_directories", good + small_zip(), "not where it is said")
    case("two_directories_plain", good + small_zip(zip64_end=False), "does not end where")
    case("prefix", b"PK\3\4" + bytes(28) + good, "zip64 end record is not")
    case("prefix_plain", b"PK\3\4" + bytes(28) + small_zip(zip64_end=False), "does not end where")
    case("disk", small_zip(end={"disk": 1}), "several disks", UNSUPPORTED)
    case("count_more", small_zip(zip64_end=False, end={"n": 4}), "directory is damaged")
    case("count_less", small_zip(zip64_end=False, end={"n": 2}), "more than it counts")
    case("count_65534", small_zip(zip64_end=False, end={"n": 65534}), "over 16384", LIMIT)
    case("count_2_63", small_zip(end={"n": 65535, "end64": {"n": 2 ** 63, "n_disk": 2 ** 63}}),
         "over 16384", LIMIT)
    case("offset_wraps", small_zip(end={"offset": 2 ** 32 - 1,
                                        "end64": {"offset": 2 ** 64 - 1}}), "does not end where")
    case("end64_disagrees", small_zip(end={"end64": {"n": 2, "n_disk": 2}}), "disagree")
    for name, fields in (("signature", {"signature": b"PK\6\5"}), ("length", {"length": 45}),
                         ("disk", {"disk": 1}), ("start_disk", {"start_disk": 1}),
                         ("locator_disk", {"locator_disk": 1}), ("disks", {"disks": 2})):
        case(f"end64_{name}", small_zip(end={"end64": fields}), "not where it is said")
    for name, fields in (("n_disk", {"n_disk": 2}), ("size", {"size": 9}),
                         ("offset", {"offset": 9})):
        case(f"end64_{name}", small_zip(end={"end64": fields}), "disagree")
    case("end64_alone", b"PK\3\4" + Zip().bytes()[56:], "not where it is said")
    case("counts", small_zip(zip64_end=False)[:-14] + struct.pack("<HHIIH", 2, 3, 0, 0, 0),
         "several disks", UNSUPPORTED)
    case("comment_length", small_zip()[:-2] + b"\5\0", "runs past")
    case("locator", small_zip(end={"locator": 5}), "not where it is said")
    case("empty", Zip(zip64_end=False).bytes(), "it is empty")
    case("other", Zip().add("word/document.xml", b"<xml/>").bytes(), "word/document.xml")
    case("npz", Zip().add("weights.npy", b"\x93NUMPY").bytes(), "NumPy's (.npz)")
    case("two_pickles", small_zip(between=lambda z: z.add("b/data.pkl", b"N.")), "two pickles")
    case("torchscript", small_zip(between=lambda z: z.add("a/constants.pkl", b"N.")), "TorchScript",
         UNSUPPORTED)
    case("duplicate", small_zip(between=lambda z: z.add("a/data/0", bytes(24))), "is there twice")
    case("encrypted", small_zip(tensor={"flags": 0x809}), "encrypted", UNSUPPORTED)
    case("flags", small_zip(tensor={"flags": 0x828}), "flags")
    case("method", small_zip(tensor={"method": 12}), "method 12", UNSUPPORTED)
    case("crc_tensor", small_zip(tensor={"crc": 1}), "CRC")
    case("crc_pickle", small_zip(data_pkl={"crc": 1}), "CRC")
    case("local_name", small_zip(tensor={"local": {"name": b"a/data/1"}}), "disagree")
    case("local_crc", small_zip(tensor={"local": {"crc": 7}}), "disagree")
    case("local_size", small_zip(tensor={"local": {"size": 23, "compressed": 23}}), "disagree")
    case("local_method", small_zip(tensor={"local": {"method": 8}}), "disagree")
    case("local_flags", small_zip(tensor={"local": {"flags": 0x800}}), "disagree")
    case("descriptor", small_zip(tensor={"descriptor": b"PK\7\x08" + bytes(12)}), "data descriptor")
    case("descriptor_missing", small_zip(tensor={"descriptor": b""}), "data descriptor")
    case("gap", small_zip(descriptors=False, tensor={"stored": bytes(24) + b"hidden",
                                                     "local": {"compressed": 24},
                                                     "central": {"compressed": 24}}),
         "belong to no member")
    case("two_sizes", small_zip(tensor={"central": {"size": 25}}), "two sizes")
    case("overlap", small_zip(descriptors=False,
                              tensor={"central": {"size": 999, "compressed": 999},
                                      "local": {"size": 999, "compressed": 999}}), "overlaps")
    case("same_local", small_zip(tensor={"central": {"offset": 0}}), "no local header")
    case("local_outside", small_zip(tensor={"central": {"offset": 2 ** 31}}), "outside")
    case("other_disk", small_zip(tensor={"central": {"disk": 3}}), "another disk")
    case("extra", small_zip(tensor={"extra": b"FB\xff\xff"}), "extra field")
    case("extra_central", small_zip(tensor={"central": {"extra": b"\1\0\4"}}), "extra field")
    case("extra_zip64_short", small_zip(tensor={"central": {
        "size": 2 ** 32 - 1, "compressed": 2 ** 32 - 1, "extra": b"\1\0\x08\0" + bytes(8)}}),
        "extra field")
    case("extra_zip64_lies", small_zip(tensor={"central": {
        "size": 2 ** 32 - 1, "compressed": 2 ** 32 - 1,
        "extra": b"\1\0\x10\0" + struct.pack("<QQ", 2 ** 63, 2 ** 63)}}), "overlaps")
    twice = b"\1\0\0\0" * 2
    case("extra_zip64_twice", small_zip(tensor={"central": {"extra": twice}}), "extra field")
    case("local_extra", small_zip(tensor={"local": {"size": 2 ** 32 - 1}, "extra": b"\1\0\0\0"}),
         "extra field")
    case("local_name_runs", small_zip(tensor={"local": {"name": b"a/data/0" + b"x" * 900}}),
         "disagree")
    case("crc_deflated", small_zip(data_pkl={"method": 8, "crc": 1}), "CRC")
    case("nul_name", small_zip(between=lambda z: z.add(b"a\0b", b"")), "NUL")
    case("empty_name", small_zip(between=lambda z: z.add(b"", b"")), "name of 0 bytes")
    case("long_name", small_zip(between=lambda z: z.add(b"n" * 600, b"")), "name of 600 bytes")
    case("compressed_tensor", small_zip(tensor={"method": 8}), "must be stored", UNSUPPORTED)
    case("deflate_damaged", small_zip(data_pkl={"method": 8, "stored": b"\xff" * 60}),
         "compressed data is damaged")
    case("deflate_tail", small_zip(data_pkl={"method": 8, "stored": b"\3\0" + bytes(90)}),
         "compressed data is damaged")
    case("bomb", Zip().add("a/data.pkl", bytes(1 << 20), method=8).bytes(), "a bomb?", LIMIT)
    case("pickle_17_mb", Zip().add("a/data.pkl", bytes(17 << 20), method=8).bytes(),
         "over 16777216", LIMIT)
    case("byte_order", torchfile.save_zip(SMALL, byteorder=b"big"), "byte order", UNSUPPORTED)
    case("pickle_tail", zip_of(torchfile.dump(SMALL)[0] + b"N.", {"0": bytes(24)}).bytes(),
         "after its pickle's end")
    case("storage_missing", zip_of(torchfile.dump(SMALL)[0]).bytes(), "no zip member for storage 0")
    case("storage_short", zip_of(torchfile.dump(SMALL)[0], {"0": bytes(20)}).bytes(),
         "has 20 bytes where 24")


# ---- pickle ---------------------------------------------------------------------------------

def text(word):
    word = word if isinstance(word, bytes) else word.encode()
    return b"X" + struct.pack("<I", len(word)) + word


def number(n):
    return b"\x8a\x08" + struct.pack("<q", n)


def tuple_of(*items):
    return b"(" + b"".join(items) + b"t"


def storage(kind=b"ctorch\nFloatStorage\n", key="0", n=6, first="storage"):
    return tuple_of(text(first), kind, text(key), text("cpu"), number(n)) + b"Q"


def rebuild(store=None, offset=0, shape=(2, 3), strides=(3, 1), name=b"_rebuild_tensor_v2"):
    return (b"ctorch._utils\n" + name + b"\n" +
            tuple_of(store or storage(), number(offset), tuple_of(*map(number, shape)),
                     tuple_of(*map(number, strides)), b"\x89", b"}") + b"R")


def dict_of(**items):
    return b"}(" + b"".join(text(k) + v for k, v in items.items()) + b"u"


def pickles():
    def case(name, body, words, status=FORMAT, n=24):
        bad(f"pickle_{name}", zip_of(b"\x80\2" + body, {"0": bytes(n)}).bytes(), status, words)

    def refused(name, module, what):
        case(name, b"c" + f"{module}\n{what}\n".encode() + b"(" + text("touch /tmp/owned") + b"tR.",
             f"Python object {module}.{what}", UNSUPPORTED)

    for module, what in (("os", "system"), ("posix", "system"), ("nt", "system"),
                         ("subprocess", "Popen"), ("builtins", "eval"), ("__builtin__", "exec"),
                         ("builtins", "getattr"), ("builtins", "__import__"), ("runpy", "run_path"),
                         ("importlib", "import_module"), ("operator", "attrgetter"),
                         ("pickle", "loads"), ("torch", "load"), ("torch.hub", "load"),
                         ("torch.storage", "_load_from_bytes"), ("numpy", "load"),
                         ("torch._utils", "_rebuild_device_tensor"), ("ctypes", "CDLL"),
                         ("torch.FloatStorage", "from_file"), ("collections", "namedtuple"),
                         ("__main__", "SuperPointNet"), ("omegaconf.dictconfig", "DictConfig"),
                         ("pytorch_lightning.callbacks", "ModelCheckpoint"),
                         ("numpy.core.multiarray", "scalar"), ("torch._utils ", "_rebuild_tensor_v2"),
                         ("torch", "FloatStorage.__init__")):
        refused(f"global_{module}_{what}".replace(" ", "_"), module, what)
    case("stack_global", text("os") + text("system") + b"\x93.", "os.system", UNSUPPORTED)
    case("stack_global_memo", text("os") + b"q\0" + text("system") + b"q\1" + b"00" + b"h\0h\1\x93.",
         "os.system", UNSUPPORTED)
    case("stack_global_int", b"K\1K\2\x93.", "not a string")
    case("stack_global_empty", text("") + text("x") + b"\x93.", "name is empty")
    case("global_no_end", b"ctorch", "line without an end")
    case("global_long", b"c" + b"m" * 300 + b"\nx\n.", "over 256 bytes")
    case("global_utf8", b"c\xff\nx\n.", "not text")
    case("inst", b"(ios\nsystem\n.", "opcode INST", UNSUPPORTED)
    case("obj", b"(cos\nsystem\no.", "os.system", UNSUPPORTED)
    case("obj_alone", b"(K\1o.", "opcode OBJ", UNSUPPORTED)
    for code, name in ((b"\x82\1", "EXT1"), (b"\x83\1\0", "EXT2"), (b"\x84\1\0\0\0", "EXT4"),
                       (b"P0\n", "PERSID"), (b"S'os'\n", "STRING"), (b"Vos\n", "UNICODE"),
                       (b"F1.0\n", "FLOAT"), (b"g0\n", "GET"), (b"p0\n", "PUT"),
                       (b"\x97", "NEXT_BUFFER"), (b"\x98", "READONLY_BUFFER")):
        case(f"opcode_{name}", b"N" + code + b".", f"opcode {name},", UNSUPPORTED)
    case("opcode_ff", b"\xff.", "ff is no opcode")
    case("call_storage", b"ctorch\nFloatStorage\n)R.", "a call of FloatStorage", UNSUPPORTED)
    case("call_text", text("x") + b")R.", "not a global")
    case("call_no_tuple", b"ccollections\nOrderedDict\n]R.", "not with a tuple")
    case("newobj_ex", b"ctorch\nSize\n)K\1\x92.", "keyword arguments")
    case("dict_of_int", b"ccollections\nOrderedDict\n(K\1tR.", "list of pairs")
    case("dict_of_single", b"ccollections\nOrderedDict\n(]]K\1aatR.", "list of pairs")
    case("set_of_int", b"cbuiltins\nset\n(K\1tR.", "else than a list")
    case("build", b"K\1}b.", "state for something")
    case("build_alone", b"}b.", "too little")
    case("empty", b"", "without its STOP")
    case("stop_first", b".", "one value")
    case("stop_two", b"NN.", "one value")
    case("stop_mark", b"N(.", "one value")
    case("no_stop", b"NNNN", "without its STOP")
    case("pop_empty", b"0.", "no mark")
    case("underflow_tuple", b"N\x87.", "too little")
    case("under_mark", b"NN(\x86.", "too little")
    case("under_mark_append", b"](N(a.", "too little")
    case("no_mark", b"Nt.", "no mark")
    case("append_none", b"NNa.", "not a list")
    case("setitem_list", b"]NNs.", "not a dictionary")
    case("setitems_odd", b"}(Nu.", "without a value")
    case("dict_odd", b"(N" + b"d.", "without a value")
    case("memo_missing", b"h\7.", "never put")
    case("memo_hole", b"Nq\5h\3.", "never put")
    case("memo_2_31", b"Nr\0\0\0\x80.", "memo entry 2147483648", LIMIT)
    case("memo_empty", b"q\0.", "too little")
    case("long4_2_gb", b"\x8b\xff\xff\xff\x7fN.", "ends inside")
    case("text_4_gb", b"X\xff\xff\xff\xffN.", "ends inside")
    case("text_2_64", b"\x8d" + b"\xff" * 8 + b"N.", "ends inside")
    case("bytes_2_63", b"\x8e" + bytes(7) + b"\x80" + b"N.", "ends inside")
    case("text_utf8", b"X\1\0\0\0\xffN.", "not UTF-8")
    case("frame", b"\x95" + b"\xff" * 8 + b"N.", "frame")
    case("protocol_6", b"", "protocol 6", UNSUPPORTED)
    BAD[-1] = (BAD[-1][0], zip_of(b"\x80\6N.").bytes(), UNSUPPORTED, "protocol 6")
    case("protocol_middle", b"N\x80\2.", "in the middle")
    case("int_text", b"Iabc\n.", "64 bits")
    case("int_empty", b"I\n.", "64 bits")
    case("int_2_64", b"I18446744073709551616\n.", "64 bits")
    case("marks", b"(" * 300, "over 256 marks", LIMIT)
    case("nest_lists", b"]" * 100000 + b"a" * 99999 + b".", "not a dictionary of tensors",
         UNSUPPORTED)
    case("nest_tuples", b"N" + b"\x85" * 100000 + b".", "not a dictionary of tensors", UNSUPPORTED)
    bomb = b")q\0" + b"0h\0h\0h\0\x87q\0" * 90  # a tuple of 3^90 leaves
    case("memo_bomb", bomb + b".", "not a dictionary of tensors", UNSUPPORTED)
    case("memo_bomb_inside", dict_of(x=bomb) + b".", "without a tensor", UNSUPPORTED)
    case("memory", b"]" * (8 << 20) + b".", "over 192 MiB", LIMIT)
    case("cycle", b"]q\0h\0a.", "not a dictionary of tensors", UNSUPPORTED)
    case("cycle_dict", b"}q\0" + text("state_dict") + b"h\0s.", "without a tensor", UNSUPPORTED)
    case("none", b"N.", "not a dictionary of tensors", UNSUPPORTED)
    case("one_tensor", rebuild() + b".", "a single tensor", UNSUPPORTED)
    case("no_tensors", dict_of(a=b"K\1") + b".", "without a tensor", UNSUPPORTED)
    case("two_dicts", dict_of(a=dict_of(w=rebuild()), b=dict_of(w=rebuild())) + b".", "several",
         UNSUPPORTED)
    case("module", dict_of(w=rebuild(tuple_of(text("module"), b"N", b"N", b"N") + b"Q")) + b".",
         "whole module", UNSUPPORTED)

    def tensor(name, words, status=FORMAT, n=24, **fields):
        case(f"tensor_{name}", dict_of(w=rebuild(**fields)) + b".", words, status, n)

    tensor("persistent_text", "not to a storage", store=text("0") + b"Q")
    tensor("persistent_first", "not to a storage", store=storage(first="tensor"))
    tensor("persistent_short", "not to a storage", store=tuple_of(text("storage")) + b"Q")
    tensor("persistent_class", "without a class", store=storage(kind=b"ccollections\nOrderedDict\n"))
    tensor("persistent_path", "no zip member", store=storage(key="../data.pkl"))
    tensor("persistent_long", "no zip member", store=storage(key="k" * 1000))
    tensor("storage_negative", "negative or overflows", store=storage(n=-1))
    tensor("storage_huge", "negative or overflows", store=storage(n=2 ** 62))
    tensor("storage_lies", "has 24 bytes where 28", store=storage(n=7))
    tensor("storage_int", "its storage", store=b"K\1")
    tensor("offset_negative", "missing or negative", offset=-1)
    tensor("offset_one", "reach outside", offset=1)
    tensor("offset_max", "reach outside", offset=2 ** 63 - 1)
    tensor("empty_outside", "reach outside", offset=7, shape=(0, 3))
    tensor("shape_negative", "missing or negative", shape=(-2, 3))
    tensor("shape_large", "reach outside", shape=(3, 3))
    tensor("shape_overflow", "reach outside", shape=(2 ** 62, 2 ** 62))
    tensor("strides_negative", "missing or negative", strides=(-3, 1))
    tensor("strides_outside", "reach outside", strides=(4, 1))
    tensor("strides_overflow", "reach outside", strides=(2 ** 62, 2 ** 62))
    tensor("strides_wrap", "reach outside", shape=(3, 3), strides=(2 ** 63 - 1, 2 ** 63 - 1))
    tensor("strides_zero", "read some twice", shape=(1000, 1000), strides=(0, 0))
    tensor("strides_few", "missing or negative", strides=(1,))
    tensor("rank_9", "rank up to 8", shape=(1,) * 9, strides=(1,) * 9)
    case("tensor_arguments", dict_of(w=b"ctorch._utils\n_rebuild_tensor_v2\n)R") + b".", "its storage")
    case("tensor_name", b"}K\1" + rebuild() + b"s.", "name is not a string")
    case("tensor_twice", b"}(" + (text("w") + rebuild()) * 2 + b"u.", "w is there twice")
    case("tensor_nul", b"}" + text("a\0b") + rebuild() + b"s.", "NUL")
    case("tensor_long", b"}" + text("n" * 257) + rebuild() + b"s.", "257 bytes", LIMIT)
    many = b"".join(text(str(i)) + b"h\0" for i in range(4097))
    case("tensors_4097", rebuild() + b"q\0" + b"0}(" + many + b"u.", "over 4096 tensors", LIMIT)
    looks = b"}(" + b"K\1K\1" * 100000 + b"uq\0" + b"0}(" + b"K\1h\0" * 100000 + b"u."
    case("shared_dicts", looks, "without a tensor", UNSUPPORTED)
    bad("pickle_alone", pickle.dumps({"w": [1.0, 2.0]}, 2), FORMAT, "not one that torch.save wrote")
    bad("pickle_alone_os", b"\x80\2cos\nsystem\n.", UNSUPPORTED, "os.system")


# ---- the format before 1.6 ------------------------------------------------------------------

def legacy():
    def case(name, content, words, status=FORMAT):
        bad(f"legacy_{name}", content, status, words)

    save = torchfile.save_legacy
    view = tuple_of(text("storage"), b"ctorch\nFloatStorage\n", text("0"), text("cpu"), number(6),
                    tuple_of(text("1"), number(0), number(6))) + b"Q"
    start = b"".join(pickle.dumps(part, 2) for part in (
        torchfile.MAGIC, 1001, {"little_endian": True}))
    keys = pickle.dumps(["0"], 2)
    data = struct.pack("<q", 6) + bytes(24)
    case("magic", save(SMALL, magic=12345), "not one that torch.save wrote")
    case("version", save(SMALL, version=1002), "not 1001", UNSUPPORTED)
    case("big_endian", save(SMALL, little=False), "big-endian", UNSUPPORTED)
    case("no_byte_order", save(SMALL, machine={}), "without its byte order")
    case("machine_list", save(SMALL, machine=[]), "without its byte order")
    case("keys_number", save(SMALL, keys=[1]), "not a string")
    case("keys_dict", save(SMALL, keys={}), "no list of its storages")
    case("keys_other", save(SMALL, keys=["7"]), "not used by any tensor")
    case("keys_twice", save(SMALL, keys=["94000", "94000"]), "there twice")
    case("keys_none", save(SMALL, keys=[])[:-32], "storage 94000 is missing")
    case("count", save(SMALL, counts=[7]), "counts of its elements disagree")
    case("count_negative", save(SMALL, counts=[-1]), "counts of its elements disagree")
    case("tail", save(SMALL) + b"x", "after its last storage")
    case("cut_data", save(SMALL)[:-1], "download is incomplete")
    case("cut_count", save(SMALL)[:-28], "download is incomplete")
    case("view", start + b"\x80\2" + dict_of(w=rebuild(view)) + b"." + keys + data, "a view",
         UNSUPPORTED)
    case("two_types", start + b"\x80\2" + dict_of(
        v=rebuild(storage(kind=b"ctorch\nIntStorage\n")), w=rebuild(storage())) + b"." + keys + data,
        "two types")
    case("os_system", start + b"\x80\2cos\nsystem\n(X\4\0\0\0truetR.", "os.system", UNSUPPORTED)


# ---- places ---------------------------------------------------------------------------------

def places(folder):
    (folder / "folder_empty").mkdir()
    bad("folder_empty", None, NOT_FOUND, "looked for model.safetensors, *.safetensors, *.pth")
    (folder / "folder_two").mkdir()
    for name in ("one.pth", "two.pt", ".hidden.pth", "notes.txt"):
        (folder / "folder_two" / name).write_bytes(b"")
    bad("folder_two", None, ARGUMENT, "2 files in this folder")
    (folder / "folder_lfs").mkdir()
    (folder / "folder_lfs" / "model.safetensors").write_bytes(LFS)
    bad("folder_lfs", None, FORMAT, "folder_lfs/model.safetensors: this is a Git LFS pointer")
    (folder / "folder_nested").mkdir()
    (folder / "folder_nested" / "model.safetensors").mkdir()
    bad("folder_nested", None, ARGUMENT, "is a folder")
    os.symlink("loop", folder / "loop")
    bad("loop", None, IO, "symbolic links")
    os.symlink("nowhere", folder / "dangling")
    bad("dangling", None, NOT_FOUND, "No such file")
    os.mkfifo(folder / "fifo")
    bad("fifo", None, ARGUMENT, "pipe or device")
    os.symlink("/dev/zero", folder / "zero")
    bad("zero", None, ARGUMENT, "pipe or device")
    bad("missing", None, NOT_FOUND, "No such file")
    bad("empty/below", None, NOT_FOUND, "Not a directory")
    with open(folder / "sparse", "wb") as sparse:
        sparse.truncate(17 << 30)
    bad("sparse", None, LIMIT, "over the limit")


def main():
    folder = pathlib.Path(sys.argv[1])
    wrong_files()
    safetensors()
    zips()
    pickles()
    legacy()
    places(folder)
    for name, content, _, _ in BAD:
        if content is not None:
            (folder / name).write_bytes(content)
    names = [row[0] for row in BAD]
    assert len(set(names)) == len(names), [n for n in names if names.count(n) > 1]
    (folder / "list.txt").write_text("".join(f"{n}\t{s}\t{w}\n" for n, _, s, w in BAD))


if __name__ == "__main__":
    main()
