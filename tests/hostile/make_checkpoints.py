#!/usr/bin/env python3
"""make_checkpoints.py FOLDER: HaMeR checkpoints that are not one, and some that are, and
FOLDER/list.txt: a line each of name, status, and words that the message must hold, with tabs
between. Whatever is in a file that wants to run would leave FOLDER/owned. Standard library only."""
import collections
import os
import pathlib
import struct
import sys
import types

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "weights"))
import torchfile  # noqa: E402
from torchfile import Storage, Tensor, Zip  # noqa: E402

OK, FORMAT, LIMIT, UNSUPPORTED = "TAP_OK", "TAP_ERR_FORMAT", "TAP_ERR_LIMIT", "TAP_ERR_UNSUPPORTED"
FILES = []


def case(name, content, status, words):
    FILES.append((name, content, status, words))


# ---- the network -----------------------------------------------------------------------------

def shapes(dim=64, depth=2, mlp=256, head_dim=48, head_depth=2, inner=32, head_mlp=96):
    """The tensors of a checkpoint; the defaults are those of the tests' tiny one."""
    head, layer = "mano_head.", "mano_head.transformer.transformer.layers."
    made = {"backbone.pos_embed": (1, 193, dim),
            "backbone.patch_embed.proj.weight": (dim, 3, 16, 16),
            "backbone.patch_embed.proj.bias": (dim,)}
    for i in range(depth):
        for name, shape in {"norm1.weight": (dim,), "norm1.bias": (dim,),
                            "attn.qkv.weight": (3 * dim, dim), "attn.qkv.bias": (3 * dim,),
                            "attn.proj.weight": (dim, dim), "attn.proj.bias": (dim,),
                            "norm2.weight": (dim,), "norm2.bias": (dim,),
                            "mlp.fc1.weight": (mlp, dim), "mlp.fc1.bias": (mlp,),
                            "mlp.fc2.weight": (dim, mlp), "mlp.fc2.bias": (dim,)}.items():
            made[f"backbone.blocks.{i}.{name}"] = shape
    made |= {"backbone.last_norm.weight": (dim,), "backbone.last_norm.bias": (dim,),
             head + "init_hand_pose": (1, 96), head + "init_betas": (1, 10),
             head + "init_cam": (1, 3), head + "transformer.pos_embedding": (1, 1, head_dim),
             head + "transformer.to_token_embedding.weight": (head_dim, 1),
             head + "transformer.to_token_embedding.bias": (head_dim,)}
    for i in range(head_depth):
        for name, shape in {"0.norm.weight": (head_dim,), "0.norm.bias": (head_dim,),
                            "0.fn.to_qkv.weight": (3 * inner, head_dim),
                            "0.fn.to_out.0.weight": (head_dim, inner),
                            "0.fn.to_out.0.bias": (head_dim,),
                            "1.norm.weight": (head_dim,), "1.norm.bias": (head_dim,),
                            "1.fn.to_kv.weight": (2 * inner, dim),
                            "1.fn.to_q.weight": (inner, head_dim),
                            "1.fn.to_out.0.weight": (head_dim, inner),
                            "1.fn.to_out.0.bias": (head_dim,),
                            "2.norm.weight": (head_dim,), "2.norm.bias": (head_dim,),
                            "2.fn.net.0.weight": (head_mlp, head_dim),
                            "2.fn.net.0.bias": (head_mlp,),
                            "2.fn.net.3.weight": (head_dim, head_mlp),
                            "2.fn.net.3.bias": (head_dim,)}.items():
            made[f"{layer}{i}.{name}"] = shape
    for name, n in (("pose", 96), ("shape", 10), ("cam", 3)):
        made |= {f"{head}dec{name}.weight": (n, head_dim), f"{head}dec{name}.bias": (n,)}
    return made


def count(shape):
    n = 1
    for size in shape:
        n *= size
    return n


def state_dict(wanted, values=None, kind="Float"):
    """All tensors out of one storage of halves, which keeps the files small; values: of those named
    instead."""
    shared = Storage(kind, [1 if kind == "Int" else 0.5] * max(map(count, wanted.values())))
    made = collections.OrderedDict((name, Tensor(shared, shape)) for name, shape in wanted.items())
    made.update(values or {})
    return made


# ---- what training saves along ---------------------------------------------------------------

class Node(dict):
    """yacs' configuration."""

    def __reduce__(self):
        return type(self), (), {"__immutable__": True}, None, iter(self.items())


class Call:
    """A pickle of one is a call: function(*arguments) when it is loaded."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def foreign(module, name, base=object):
    parts = module.split(".")
    for i in range(len(parts)):  # pickle imports each
        sys.modules[".".join(parts[:i + 1])] = types.ModuleType(".".join(parts[:i + 1]))
    what = type(name, (base,), {"__module__": module, "__qualname__": name})
    setattr(sys.modules[module], name, what)
    return what


CfgNode = foreign("yacs.config", "CfgNode", Node)
DictConfig = foreign("omegaconf.dictconfig", "DictConfig")
ModelCheckpoint = foreign("pytorch_lightning.callbacks.model_checkpoint", "ModelCheckpoint")


def checkpoint(state, **more):
    config = CfgNode(MODEL=CfgNode(BACKBONE=CfgNode(TYPE="vit")), EXTRA=CfgNode(PELVIS_IND=39))
    other = DictConfig()
    other.content = {"lr": 1e-5, "tags": {1, 2}}
    return {"epoch": 35, "global_step": 1000, "pytorch-lightning_version": "1.8.6",
            "callbacks": {ModelCheckpoint: {"best": None}}, "optimizer_states": [{"state": {}}],
            "hyper_parameters": {"cfg": config, "more": other}, "state_dict": state, **more}


def networks():
    tiny = shapes()
    sound = torchfile.save_zip(checkpoint(state_dict(tiny)))
    case("sound", sound, OK, "")
    case("sound_4", torchfile.save_zip(checkpoint(state_dict(tiny)), 4), OK, "")
    case("with_others", torchfile.save_zip(checkpoint(state_dict(
        tiny | {"discriminator.fc.weight": (3, 4), "mano.v_template": (778, 3)}))), OK, "")
    for part in (8, 4, 2):
        case(f"cut_{part}", sound[:len(sound) - len(sound) // part], FORMAT,
             "the download is incomplete, fetch it again")
    case("cut_last", sound[:-1], FORMAT, "the download is incomplete")
    case("cut_first", sound[:7], FORMAT, "the download is incomplete")
    case("legacy", torchfile.save_legacy(checkpoint(state_dict(tiny))), UNSUPPORTED,
         "in Python, save the state_dict alone: torch.save(model.state_dict(), file)")

    def other(name, wanted, status, words, **more):
        case(name, torchfile.save_zip(checkpoint(state_dict(wanted, **more))), status, words)

    def without(prefix):
        return {name: shape for name, shape in tiny.items() if not name.startswith(prefix)}

    other("superpoint", {"conv1a.weight": (4, 1, 3, 3), "conv1a.bias": (4,)}, UNSUPPORTED,
          "not a HaMeR: it has no 'backbone.patch_embed.proj.weight'; its first tensor is 'conv1a")
    other("vit", {"backbone.cls_token": (1, 1, 64)} | without("mano_head."), FORMAT,
          "not a whole HaMeR: 2 blocks of width 64, 0 decoder layers")
    other("hmr2", {name.replace("mano_head", "smpl_head"): shape for name, shape in tiny.items()},
          FORMAT, "not a whole HaMeR")
    other("head_alone", without("backbone."), UNSUPPORTED, "not a HaMeR: it has no 'backbone.patch")
    other("width_96", shapes(dim=96), UNSUPPORTED, "widths 96 and 32: how many heads they have is")
    other("inner_48", shapes(inner=48), UNSUPPORTED, "widths 64 and 48")
    other("depth_65", shapes(depth=65, mlp=16), LIMIT, "more than 64 blocks")
    other("square_input", tiny | {"backbone.pos_embed": (1, 197, 64)}, FORMAT,
          "'backbone.pos_embed' has the shape (1, 197, 64), expected (1, 193, 64)")
    other("of_two_sizes", tiny | {"backbone.blocks.1.attn.qkv.bias": (240,)}, FORMAT,
          "'backbone.blocks.1.attn.qkv.bias' has the shape (240), expected (192)")
    other("no_block_0", without("backbone.blocks.0."), FORMAT, "fetch or convert it again")
    other("no_block_1", {k: v for k, v in shapes(depth=3).items() if "blocks.1." not in k}, FORMAT,
          "'backbone.blocks.1.norm1.weight' is missing; the file is not a whole HaMeR, fetch or")
    other("no_layer_1", {k: v for k, v in shapes(head_depth=3).items() if "layers.1." not in k},
          FORMAT, "layers.1.0.norm.weight' is missing")
    other("no_blocks", without("backbone.blocks."), FORMAT, "not a whole HaMeR: 0 blocks")
    # 34 GB, if what tensors without elements claim were believed.
    last = "mano_head.transformer.transformer.layers."
    other("huge_and_empty", {
        "backbone.patch_embed.proj.weight": (8000, 3, 16, 0),
        "backbone.blocks.0.mlp.fc1.weight": (8192, 0),
        "backbone.blocks.63.mlp.fc1.weight": (8192, 0),
        "mano_head.transformer.pos_embedding": (1, 1, 8192),
        last + "0.1.fn.to_q.weight": (8192, 0), last + "0.2.fn.net.0.weight": (8192, 0),
        last + "63.1.fn.to_q.weight": (8192, 0)}, FORMAT, "'backbone.pos_embed' is missing")
    nan = Tensor(Storage("Float", [0.5] * 63 + [float("nan")]), (64,))
    other("nan", tiny, FORMAT, "'backbone.last_norm.bias' holds a NaN or an infinity",
          values={"backbone.last_norm.bias": nan})
    other("integers", tiny, UNSUPPORTED, "where floating point is wanted", kind="Int")
    other("nothing_there", tiny | {"mano_head.transformer.pos_embedding": (1, 1, 0)}, FORMAT,
          "decoder layers of width 0")


# ---- what would run --------------------------------------------------------------------------

def text(word):
    return b"X" + struct.pack("<I", len(word)) + word.encode()


def zip_with(state, tail):
    """A checkpoint whose pickle goes on after its state_dict: tail is keys and values."""
    pickled, storages = torchfile.dump(state)
    out = Zip().add("a/data.pkl", b"\x80\2}(" + text("state_dict") + pickled[2:-1] + tail + b"u.")
    for key, storage in storages:
        out.add(f"a/data/{key}", storage.raw)
    return out.add("a/version", b"3\n").bytes()


def attacks(folder):
    tiny = shapes()
    command = f"touch {folder}/owned"
    run = Call(os.system, command)
    python = Call(eval, f"open({str(folder) + '/owned'!r}, 'w')")
    first = "backbone.patch_embed.proj.bias"

    def attack(name, content, status, words):
        case(f"attack_{name}", content, status, words)

    # Beside the tensors an object is an inert mark.
    for name, what in (("system", run), ("eval", python), ("deep", Call(os.system, (run, run)))):
        attack(f"{name}_beside", torchfile.save_zip(checkpoint(state_dict(tiny), extra=what)), OK,
               "")
    attack("system_key", torchfile.save_zip({"x": {run: 1}, **checkpoint(state_dict(tiny))}), OK, "")
    attack("system_inst", zip_with(state_dict(tiny), text("x") + b"(" + text(command) +
                                   b"ios\nsystem\n"), UNSUPPORTED, "opcode INST")
    attack("system_first", torchfile.save_zip(checkpoint(run)), UNSUPPORTED, "without a tensor")
    attack("system_alone", torchfile.save_zip(run), UNSUPPORTED, "not a dictionary of tensors")
    attack("system_tensor", torchfile.save_zip(checkpoint(state_dict(tiny, {first: run}))), FORMAT,
           f"'{first}' is missing")
    attack("system_legacy", torchfile.save_legacy(checkpoint(state_dict(tiny), extra=run)),
           UNSUPPORTED, "which is never loaded; in Python, save")
    attack("strict_system", torchfile.save_legacy({"x": run}), UNSUPPORTED, "posix.system")
    sound = state_dict(tiny)
    attack("recursion", zip_with(sound, text("x") + b"]" * 100000 + b"a" * 99999), OK, "")
    attack("recursion_tuples", zip_with(sound, text("x") + b"N" + b"\x85" * 100000), OK, "")
    attack("recursion_marks", zip_with(sound, text("x") + b"(" * 300), LIMIT, "over 256 marks")
    attack("recursion_self", zip_with(sound, text("x") + b"]q\0h\0a"), OK, "")
    attack("state_dict_self", zip_with({}, text("state_dict") + b"}q\0" + text("a") + b"h\0s"),
           UNSUPPORTED, "without a tensor")
    attack("memo", zip_with(sound, text("x") + b"Nr\xff\xff\xff\x7f"), LIMIT, "memo entry 2147483647")
    attack("memory", zip_with(sound, text("x") + b"]" * (8 << 20)), LIMIT, "over 192 MiB")
    laughs = b")q\0" + b"0h\0h\0h\0\x87q\0" * 90  # a tuple of 3^90 leaves
    attack("laughs", zip_with(sound, text("x") + laughs), OK, "")
    twice = text("a") + b"h\0s" + text("b") + b"h\0s"
    attack("laughs_dicts", zip_with(sound, text("x") + b"}q\0" + (b"0}" + twice + b"q\0") * 90), OK, "")
    attack("encrypted", encrypted(sound), UNSUPPORTED, "encrypted")
    attack("disks", torchfile.save_zip(sound, zip64_end=False)[:-18] +
           struct.pack("<HHHHIIH", 1, 1, 1, 1, 0, 0, 0), UNSUPPORTED, "several disks")


def encrypted(state):
    pickled, storages = torchfile.dump(state)
    out = Zip().add("a/data.pkl", pickled, flags=0x809)
    for key, storage in storages:
        out.add(f"a/data/{key}", storage.raw)
    return out.bytes()


def main():
    folder = pathlib.Path(sys.argv[1])
    networks()
    attacks(folder)
    for name, content, _, _ in FILES:
        (folder / name).write_bytes(content)
    names = [row[0] for row in FILES]
    assert len(set(names)) == len(names), [n for n in names if names.count(n) > 1]
    (folder / "list.txt").write_text("".join(f"{n}\t{s}\t{w}\n" for n, _, s, w in FILES))


if __name__ == "__main__":
    main()
