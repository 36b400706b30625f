"""make_arrays.py FOLDER: dictionaries of arrays as NumPy writes them, pickles of protocols 2 to 5
and .npz files. Element i of an array, counted in C order, is i. Exits with 77 without NumPy."""
import pickle
import sys

try:
    import numpy as np
except ImportError:
    sys.exit(77)

TYPES = ["f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1"]
SHAPES = [(), (0, 3), (5,), (2, 3), (2, 3, 4)]


def main():
    arrays = {}
    for name in TYPES:
        for i, shape in enumerate(SHAPES):
            array = np.arange(int(np.prod(shape)), dtype="<" + name).reshape(shape)
            key = f"{name}_{i}"
            arrays[key + "_c"] = array
            arrays[key + "_f"] = np.asfortranarray(array)
            # Turned from C's order, which NumPy 2.3 and later say in protocol 5.
            turn = (1, 0, 2)[:len(shape)]
            arrays[key + "_k"] = (np.ascontiguousarray(array.transpose(turn)).transpose(turn)
                                  if len(shape) > 1 else array)
            # Neither order as it lies; NumPy writes a copy in C's.
            arrays[key + "_s"] = np.repeat(array, 2, axis=-1)[..., ::2] if shape else array.copy()
    folder = sys.argv[1]
    np.savez(f"{folder}/stored.npz", **arrays)
    np.savez_compressed(f"{folder}/compressed.npz", **arrays)
    arrays.update(bs_style="lbs", number=np.float64(3), flag=np.True_, none=None, half=0.5)
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        with open(f"{folder}/{protocol}.pkl", "wb") as out:
            pickle.dump(arrays, out, protocol)


if __name__ == "__main__":
    main()
