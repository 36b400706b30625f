"""Writes the seeds of fuzz_image and fuzz_exif: small pictures of every kind. Run from the
repository root: /usr/bin/python3 fuzz/corpus/make_pictures.py"""

import os
import sys

import numpy as np
from PIL import Image

sys.path.insert(0, "tests/image")
from picture_tool import SAMPLES, chunk, make_png  # noqa: E402
from test_pillow import exif_block, noise, saved, with_adobe  # noqa: E402

image = Image.fromarray(noise(9, 13, 3))
rgba = Image.fromarray(noise(9, 13, 4), "RGBA")
pictures = {
    "baseline.jpg": saved(image, "JPEG"),
    "progressive.jpg": saved(image, "JPEG", progressive=True),
    "444.jpg": saved(image, "JPEG", subsampling=0, optimize=True),
    "grey.jpg": saved(image.convert("L"), "JPEG", optimize=True),
    "ycck.jpg": with_adobe(saved(image.convert("CMYK"), "JPEG", optimize=True), 2),
    "exif.jpg": saved(image, "JPEG", optimize=True, exif=b"Exif\0\0" + exif_block(6)),
    "lossy.webp": saved(image, "WEBP", quality=50),
    "lossless.webp": saved(image, "WEBP", lossless=True),
    "alpha.webp": saved(rgba, "WEBP", quality=50),
    "animation.webp": saved(rgba, "WEBP", save_all=True, append_images=[rgba.rotate(90)]),
    "exif.webp": saved(image, "WEBP", lossless=True, exif=exif_block(3, ">")),
}
for color_type, depth, interlaced in [(0, 1, 0), (0, 16, 1), (2, 8, 1), (2, 16, 0), (3, 4, 0),
                                      (3, 8, 1), (4, 8, 0), (6, 8, 0), (6, 16, 1)]:
    samples = np.random.default_rng(depth).integers(0, 1 << depth, (5, 9, SAMPLES[color_type]))
    palette = bytes(range(45)) if color_type == 3 else None
    side = chunk(b"tEXt", b"k\0v") + chunk(b"eXIf", exif_block(8))
    data = make_png(samples, depth, color_type, interlaced, side, palette=palette)
    pictures[f"{color_type}_{depth}_{interlaced}.png"] = data

for name, data in pictures.items():
    targets = ["image"] + (["exif"] if b"MM\0*" in data or b"II*\0" in data else [])
    for target in targets:
        os.makedirs(f"fuzz/corpus/{target}", exist_ok=True)
        with open(f"fuzz/corpus/{target}/{name}", "wb") as file:
            file.write(data)
