"""Two overlapping photos to one panorama: keypoints and matches by tapetum, the rest by OpenCV.

    pip install opencv-python-headless
    python examples/stitch.py left.jpg right.jpg panorama.jpg [--weights superpoint.safetensors]
"""

import argparse
import sys

import cv2
import numpy as np

import tapetum


def stitch(model, left, right):
    """The right photo laid beside the left one, in the left one's frame."""
    matches = model.match(left, right, size="native", max_keypoints=2000, min_similarity=0.7)
    ours, theirs = matches.points
    if len(matches) < 8:
        sys.exit(f"only {len(matches)} places are in both pictures; do they overlap?")
    homography, inliers = cv2.findHomography(theirs, ours, cv2.RANSAC, 3.0)
    if homography is None or inliers.sum() < 8:
        sys.exit("the matches do not agree on one plane or one turn of the camera")
    print(f"{len(matches)} matches, of which {int(inliers.sum())} agree")

    # A canvas that holds both: the right one's corners, seen from the left one.
    height, width = right.shape[:2]
    corners = np.array([[0, 0], [width, 0], [width, height], [0, height]], np.float32)
    at = cv2.perspectiveTransform(corners[None], homography)[0]
    at = np.vstack([at, [[0, 0], [left.shape[1], left.shape[0]]]])
    low, high = np.floor(at.min(0)).astype(int), np.ceil(at.max(0)).astype(int)
    if (high - low).max() > 4 * max(left.shape[:2] + right.shape[:2]):
        sys.exit("the pictures would be stretched without end: the match is wrong")
    shift = np.array([[1, 0, -low[0]], [0, 1, -low[1]], [0, 0, 1]], np.float64)
    canvas = cv2.warpPerspective(right, shift @ homography, tuple(int(side) for side in high - low))
    y, x = -low[1], -low[0]
    canvas[y : y + left.shape[0], x : x + left.shape[1]] = left
    return canvas


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("left")
    parser.add_argument("right")
    parser.add_argument("panorama")
    parser.add_argument("--weights", help="a path or a repository; default: Magic Leap's, out of the cache")
    options = parser.parse_args()
    photos = [tapetum.Picture.open(path).array for path in (options.left, options.right)]
    photos = [np.dstack([photo] * 3) if photo.ndim == 2 else photo for photo in photos]  # grey
    with tapetum.SuperPoint.from_pretrained(options.weights) as model:
        panorama = stitch(model, *photos)
    tapetum.Picture.open(panorama).save(options.panorama)
    print(f"{options.panorama}: {panorama.shape[1]} x {panorama.shape[0]}")


if __name__ == "__main__":
    main()
