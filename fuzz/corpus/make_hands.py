"""Writes the seeds of fuzz_arrays, fuzz_mano and fuzz_checkpoint: NumPy's pickles and .npz files, of
them MANO's with their runs written short as fuzz_mano.c reads them, and pickles of the smallest
HaMeR. Run from the repository root: /usr/bin/python3 fuzz/corpus/make_hands.py"""

import io
import os
import pickle
import re
import sys

import numpy as np

sys.path.insert(0, "tests/hostile")
import make_checkpoints  # noqa: E402
from make_checkpoints import Call, checkpoint, foreign, torchfile  # noqa: E402

Ch = foreign("chumpy.ch", "Ch")
Select = foreign("chumpy.reordering", "Select")
Sparse = foreign("scipy.sparse.csc", "csc_matrix")
Sparse1 = foreign("scipy.sparse._csc", "csc_matrix")


def object_of(kind, **state):
    made = kind()
    made.__dict__.update(state)
    return made


def select(values, indices, shape):
    inner = object_of(Ch, x=values, _dirty_vars=set(), _itr=None)
    return object_of(Select, a=inner, idxs=indices, preferred_shape=shape, _status="new")


def sparse(kind, dense):
    """In columns, as SciPy has it."""
    rows = [np.flatnonzero(dense[:, j]) for j in range(dense.shape[1])]
    ends = np.cumsum([0] + [len(r) for r in rows]).astype("i4")
    data = np.concatenate([dense[r, j] for j, r in enumerate(rows)])
    return object_of(kind, _shape=dense.shape, data=data, format="csc", maxprint=50,
                     indices=np.concatenate(rows).astype("i4"), indptr=ends)


def npz(arrays, save=np.savez):
    out = io.BytesIO()
    save(out, **arrays)
    return out.getvalue()


def arrays():
    small = {"a": np.arange(6, dtype="f4").reshape(2, 3), "i": np.arange(3, dtype="i8"),
             "f": np.asfortranarray(np.ones((2, 3))), "h": np.zeros((), "f2"),
             "none": np.zeros((0, 3)), "u": np.array([1, 2], "u2"), "b": np.array([True])}
    others = {"style": "lbs", "number": np.float64(3), "list": [1, 2.5, None, b"x"],
              "s": select(np.arange(8.0), np.array([1, 3, 5, 7]), (2, 2)), "set": {1},
              "m": sparse(Sparse, np.diag([1.0, 2.0, 3.0]))}
    seeds = {f"protocol{p}": pickle.dumps({**small, **others}, p) for p in range(2, 6)}
    seeds["stored"] = npz({k: small[k] for k in "ai"})
    seeds["compressed"] = npz({k: small[k] for k in "af"}, np.savez_compressed)
    turned = Call(np.core.numeric._frombuffer, bytes(range(6)), np.dtype("u1"), (1, 2, 3), "K",
                  (2, 0, 1))
    seeds["turned"] = pickle.dumps({"k": turned}, 5)
    seeds["call"] = pickle.dumps({"a": small["a"], "x": Call(os.system, "true")}, 2)
    return seeds


def short(data):
    """The runs of eight equal bytes and more, and f5, written as fuzz_mano.c reads them."""
    return re.sub(rb"\xf5|(.)\1{7,}", lambda run: b"\xf5" + len(run[0]).to_bytes(3, "little") + run[0][:1],
                  data, flags=re.S)


def mano():
    """Two joints that count, and numbers that repeat: half floats 0x2020 are 0.008."""
    tree = np.zeros((2, 16), "i4")
    tree[0, 0] = -1
    regressor = np.zeros((16, 778), "f4")
    regressor[0, 0], regressor[1, 1] = 1, 1
    flat = {"v_template": np.full((778, 3), 0x2020, "u2").view("f2"),
            "shapedirs": np.full((778, 3, 10), 0x1010, "u2").view("f2"),
            "posedirs": np.zeros((778, 3, 135), "f2"), "weights": np.zeros((778, 16), "f2"),
            "kintree_table": tree, "f": np.zeros((1538, 3), "u2"), "J_regressor": regressor}
    original = {**flat, "J_regressor": sparse(Sparse, regressor), "bs_style": "lbs",
                "shapedirs": select(np.zeros(30, "f2"), np.zeros(23340, "i4"), (778, 3, 10))}
    newer = {**flat, "J_regressor": sparse(Sparse1, regressor),
             "weights": np.asfortranarray(flat["weights"])}
    return {"protocol2": short(pickle.dumps(original, 2)), "protocol4": short(pickle.dumps(newer, 4)),
            "protocol5": short(pickle.dumps(flat, 5)), "npz": short(npz(flat))}


def checkpoints():
    wanted = make_checkpoints.shapes(depth=1, head_depth=1, mlp=8, head_mlp=8, head_dim=8)
    state = make_checkpoints.state_dict(wanted)
    few = make_checkpoints.state_dict({"backbone.patch_embed.proj.bias": (2,), "mano_head.x": (1, 2)})
    return {"pickle2": torchfile.dump(checkpoint(state), 2)[0],
            "pickle4": torchfile.dump(checkpoint(state), 4)[0],
            "bare": torchfile.dump(state, 2)[0],
            "zip": torchfile.save_zip(checkpoint(few, extra=Call(os.system, "true"))),
            "legacy": torchfile.save_legacy(few)}


def main():
    for target, seeds in (("arrays", arrays()), ("mano", mano()), ("checkpoint", checkpoints())):
        os.makedirs(f"fuzz/corpus/{target}", exist_ok=True)
        for name, data in seeds.items():
            with open(f"fuzz/corpus/{target}/{name}", "wb") as file:
                file.write(data)


if __name__ == "__main__":
    main()
