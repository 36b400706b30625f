"""Writes PyTorch checkpoints without PyTorch: pickles with torch.save's globals and persistent
references, in the zip format (as miniz writes it there) and in the one before. Standard library
only. Everything is deterministic."""
import collections
import io
import pickle
import struct
import sys
import types
import zlib

LETTERS = {"Float": "f", "Half": "e", "Double": "d", "Long": "q", "Int": "i", "Short": "h",
           "Char": "b", "Byte": "B", "Bool": "?"}


def _module(name, **members):
    module = types.ModuleType(name)
    for key, member in members.items():
        member.__module__ = name
        setattr(module, key, member)
    sys.modules[name] = module
    return module


def _function(name):
    def function(*arguments):
        raise RuntimeError("pickled, never called")
    function.__name__ = function.__qualname__ = name
    return function


_utils = _module("torch._utils", **{name: _function(name) for name in (
    "_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_parameter")})
_torch = _module("torch", **{f"{name}Storage": type(f"{name}Storage", (), {})
                             for name in list(LETTERS) + ["BFloat16"]})
_torch._utils = _utils
_torch.Size = _function("Size")
_torch.Size.__module__ = "torch"


class Size(tuple):
    def __reduce__(self):
        return _torch.Size, (tuple(self),)


class Storage:
    def __init__(self, kind, values, raw=None):
        self.kind, self.n = kind, len(values)
        if kind == "BFloat16":  # the upper half; the values are short enough to need no rounding
            self.raw = b"".join(struct.pack("<f", v)[2:] for v in values)
        else:
            self.raw = struct.pack(f"<{len(values)}{LETTERS[kind]}", *values)
        if raw is not None:
            self.raw = raw


class Tensor:
    """A view of a storage. strides: dense unless given."""

    def __init__(self, storage, shape, offset=0, strides=None, parameter=False, old=False):
        self.storage, self.offset, self.shape = storage, offset, tuple(shape)
        if strides is None:
            strides, step = [], 1
            for n in reversed(self.shape):
                strides.insert(0, step)
                step *= n
        self.strides, self.parameter, self.old = tuple(strides), parameter, old

    def __reduce__(self):
        if self.old:
            return _utils._rebuild_tensor, (self.storage, self.offset, self.shape, self.strides)
        if self.parameter:
            inner = Tensor(self.storage, self.shape, self.offset, self.strides)
            return _utils._rebuild_parameter, (inner, True, collections.OrderedDict())
        return _utils._rebuild_tensor_v2, (self.storage, self.offset, self.shape, self.strides,
                                           False, collections.OrderedDict())


class _Pickler(pickle.Pickler):
    def __init__(self, out, protocol, legacy):
        super().__init__(out, protocol)
        self.legacy, self.keys, self.storages = legacy, {}, []

    def persistent_id(self, thing):
        if not isinstance(thing, Storage):
            return None
        if id(thing) not in self.keys:
            self.keys[id(thing)] = str(len(self.storages) + (94000 if self.legacy else 0))
            self.storages.append(thing)
        identity = ("storage", getattr(_torch, f"{thing.kind}Storage"), self.keys[id(thing)],
                    "cpu", thing.n)
        return identity + (None,) if self.legacy else identity


def dump(thing, protocol=2, legacy=False):
    """(pickle, [(key, storage), ...])"""
    out = io.BytesIO()
    pickler = _Pickler(out, protocol, legacy)
    pickler.dump(thing)
    return out.getvalue(), [(pickler.keys[id(s)], s) for s in pickler.storages]


class Zip:
    """A zip, field by field, so that each can be made to lie. Defaults as torch's writer: stored,
    CRC and sizes behind the data, data at multiples of 64, both kinds of end record."""

    def __init__(self, descriptors=True, zip64_end=True):
        self.descriptors, self.zip64_end = descriptors, zip64_end
        self.body, self.central, self.n = b"", b"", 0

    def add(self, name, data, method=0, flags=None, crc=None, local=None, central=None,
            stored=None, extra=None, descriptor=None):
        """local, central: what to put over the defaults, as {field: value}."""
        name = name if isinstance(name, bytes) else name.encode()
        if stored is None:
            deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
            stored = deflate.compress(data) + deflate.flush() if method == 8 else data
        fields = {"flags": flags if flags is not None else 0x808 if self.descriptors else 0x800,
                  "method": method, "crc": zlib.crc32(data) if crc is None else crc,
                  "compressed": len(stored), "size": len(data), "name": name, "disk": 0,
                  "offset": len(self.body)}
        later = fields["flags"] & 8
        nothing = {"crc": 0, "compressed": 0, "size": 0} if later else {}
        near = {**fields, **nothing, **(local or {})}
        if extra is None:
            pad = -(len(self.body) + 30 + len(near["name"]) + 4) % 64
            extra = b"FB" + struct.pack("<H", pad) + b"Z" * pad
        self.body += b"PK\3\4" + struct.pack(
            "<HHHHHIIIHH", 0, near["flags"], near["method"], 0, 0, near["crc"],
            near["compressed"], near["size"], len(near["name"]), len(extra)) + near["name"] + extra
        self.body += stored
        if later:
            self.body += descriptor if descriptor is not None else b"PK\7\x08" + struct.pack(
                "<III", fields["crc"], len(stored), len(data))
        far = {**fields, **(central or {})}
        self.central += b"PK\1\2" + struct.pack(
            "<HHHHHHIIIHHHHHII", 0, 0, far["flags"], far["method"], 0, 0, far["crc"],
            far["compressed"], far["size"], len(far["name"]), len(far.get("extra", b"")), 0,
            far["disk"], 0, 0, far["offset"]) + far["name"] + far.get("extra", b"")
        self.n += 1
        return self

    def bytes(self, n=None, comment=b"", disk=0, offset=None, size=None, locator=None, end64=None):
        n = self.n if n is None else n
        offset = len(self.body) if offset is None else offset
        size = len(self.central) if size is None else size
        out = self.body + self.central
        if self.zip64_end:
            at = len(out) if locator is None else locator
            record = {"n": n, "n_disk": n, "size": size, "offset": offset, "length": 44,
                      "signature": b"PK\6\6", "disk": 0, "start_disk": 0, "locator_disk": 0,
                      "disks": 1, **(end64 or {})}
            out += record["signature"] + struct.pack(
                "<QHHIIQQQQ", record["length"], 0x31e, 45, record["disk"], record["start_disk"],
                record["n_disk"], record["n"], record["size"], record["offset"])
            out += b"PK\6\7" + struct.pack("<IQI", record["locator_disk"], at, record["disks"])
        return out + b"PK\5\6" + struct.pack("<HHHHIIH", disk, disk, n, n, size, offset,
                                             len(comment)) + comment


def save_zip(thing, protocol=2, root="archive", byteorder=b"little", pickle_method=0,
             zip64_members=False, **options):
    """torch.save(thing, file). zip64_members: sizes in the form that they have over 4 GiB."""
    data, storages = dump(thing, protocol)
    out = Zip(**options).add(f"{root}/data.pkl", data, method=pickle_method)
    if byteorder is not None:
        out.add(f"{root}/byteorder", byteorder)
    for key, storage in storages:
        raw, huge, more = storage.raw, 2 ** 32 - 1, {}
        if zip64_members:
            sizes = struct.pack("<QQ", len(raw), len(raw))
            extra = b"\1\0\x18\0" + sizes + struct.pack("<Q", len(out.body))
            more = {"central": {"size": huge, "compressed": huge, "offset": huge, "extra": extra},
                    "local": {"size": huge, "compressed": huge}, "extra": b"\1\0\x10\0" + sizes,
                    "descriptor": (b"PK\7\x08" if len(raw) % 8 else b"") +
                    struct.pack("<I", zlib.crc32(raw)) + sizes}
        elif len(raw) % 8:  # a signature before the descriptor is optional
            more = {"descriptor": struct.pack("<III", zlib.crc32(raw), len(raw), len(raw))}
        out.add(f"{root}/data/{key}", raw, **more)
    return out.add(f"{root}/version", b"3\n").bytes()


MAGIC = 0x1950a86a20f9469cfc6c


def save_legacy(thing, protocol=2, magic=MAGIC, version=1001, little=True, keys=None, counts=None,
                machine=None):
    """torch.save(thing, file, _use_new_zipfile_serialization=False)"""
    data, storages = dump(thing, protocol, legacy=True)
    if machine is None:
        machine = {"protocol_version": 1001, "little_endian": little,
                   "type_sizes": {"short": 2, "int": 4, "long": 4}}
    out = b"".join(pickle.dumps(part, protocol) for part in (magic, version, machine)) + data
    storages.sort(key=lambda pair: pair[0])
    out += pickle.dumps([key for key, _ in storages] if keys is None else keys, protocol)
    for i, (_, storage) in enumerate(storages):
        out += struct.pack("<q", storage.n if counts is None else counts[i]) + storage.raw
    return out
