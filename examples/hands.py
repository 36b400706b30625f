"""The hands in a folder of photos, to one CSV file, and with MANO to a GLB file a photo.

    python examples/hands.py photos/ hands/ [--boxes boxes.csv] [--weights hamer.ckpt] [--mano MANO_RIGHT.pkl]

boxes.csv has the lines `file,x1,y1,x2,y2,side`, side being left or right, as many a photo as it shows
hands. Without it the hand is taken to be a right one in the photo's middle.
"""

import argparse
import collections
import csv
import pathlib
import sys

import tapetum

SUFFIXES = {".jpg", ".jpeg", ".png", ".webp"}


def read_boxes(path):
    """Boxes and sides by file name."""
    boxes = collections.defaultdict(list)
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            box = [float(row[corner]) for corner in ("x1", "y1", "x2", "y2")]
            side = row["side"].strip().lower()
            if side not in ("left", "right"):
                sys.exit(f"{path}: {row['file']}: the side is left or right, not {side!r}")
            boxes[row["file"]].append((box, side == "right"))
    return boxes


def columns():
    yield from ("file", "hand", "side", "x1", "y1", "x2", "y2", "place_x", "place_y", "place_z")
    yield from (f"beta_{i}" for i in range(10))
    yield from (f"axis_angle_{i}_{axis}" for i in range(16) for axis in "xyz")
    yield from (f"joint_{i}_{axis}" for i in range(21) for axis in "xyz")  # empty without MANO


def row(name, i, hand):
    joints = [""] * 63 if hand.joints is None else hand.joints.ravel().tolist()
    return [name, i, "right" if hand.is_right else "left", *hand.bbox, *hand.cam_t_full.tolist(),
            *hand.betas.tolist(), *hand.axis_angle.ravel().tolist(), *joints]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("photos", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--boxes", type=pathlib.Path)
    parser.add_argument("--weights", help="a path or a repository; default: changh95/hamer-weights")
    parser.add_argument("--mano", help="your MANO_RIGHT.pkl; default: where docs/hamer.md says")
    options = parser.parse_args()
    photos = sorted(path for path in options.photos.iterdir()
                    if path.suffix.lower() in SUFFIXES and ".hands." not in path.name)
    if not photos:
        sys.exit(f"{options.photos}: no .jpg, .png or .webp in it")
    boxes = read_boxes(options.boxes) if options.boxes else None
    options.out.mkdir(parents=True, exist_ok=True)
    with tapetum.HamerModel.from_pretrained(options.weights, mano_path=options.mano) as model, open(
            options.out / "hands.csv", "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(columns())
        for path in photos:
            if boxes is None:
                hands = tapetum.Hands([model(path)])
            else:
                found = boxes.get(path.name, [])
                hands = model(path, [box for box, _ in found], [side for _, side in found])
            for i, hand in enumerate(hands):
                table.writerow(row(path.name, i, hand))
            if hands:
                hands.draw().save(options.out / f"{path.name}.hands.jpg")
                if model.info.mano_available:
                    hands.save_mesh(options.out / f"{path.name}.hands.glb")
            print(f"{path.name}: {len(hands)}")


if __name__ == "__main__":
    main()
