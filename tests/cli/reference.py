"""SuperPoint in NumPy, in double precision, straight from its definition. Slow: small inputs."""

import numpy as np


def convolve(x, weight, bias):
    """x (channels, height, width), zero padding that keeps the size."""
    size, (_, height, width) = weight.shape[-1], x.shape
    padded = np.pad(x, ((0, 0), (size // 2, size // 2), (size // 2, size // 2)))
    out = np.zeros((weight.shape[0], height, width))
    for row in range(size):
        for column in range(size):
            out += np.einsum("oi,ihw->ohw", weight[:, :, row, column],
                             padded[:, row:row + height, column:column + width], optimize=True)
    return out + bias[:, None, None]


def forward(weights, image):
    """image (height, width) in [0, 1]. Scores of its size, descriptors (256, cells)."""
    def layer(name, x):
        return convolve(x, weights[name + ".weight"].astype(float),
                        weights[name + ".bias"].astype(float))

    x = image[None]
    for block in range(4):
        for half in "ab":
            x = np.maximum(layer(f"encoder.conv_blocks.{block}.conv_{half}", x), 0)
        if block < 3:
            channels, height, width = x.shape
            x = x.reshape(channels, height // 2, 2, width // 2, 2).max((2, 4))
    logits = layer("keypoint_decoder.conv_score_b",
                   np.maximum(layer("keypoint_decoder.conv_score_a", x), 0))
    shares = np.exp(logits - logits.max(0))
    shares = (shares / shares.sum(0))[:64]
    height, width = shares.shape[1:]
    scores = shares.reshape(8, 8, height, width).transpose(2, 0, 3, 1)
    features = layer("descriptor_decoder.conv_descriptor_b",
                     np.maximum(layer("descriptor_decoder.conv_descriptor_a", x), 0))
    return scores.reshape(8 * height, 8 * width), features / np.linalg.norm(features, axis=0)


def window_maximum(scores, radius):
    height, width = scores.shape
    padded = np.pad(scores, radius, constant_values=-np.inf)
    return np.max([padded[row:row + height, column:column + width]
                   for row in range(2 * radius + 1) for column in range(2 * radius + 1)], axis=0)


def single_pass(scores, radius):
    return scores == window_maximum(scores, radius)


def iterative(scores, radius):
    kept = single_pass(scores, radius)
    for _ in range(2):
        near = window_maximum(kept.astype(float), radius) > 0
        rest = np.where(near, 0, scores)
        kept |= (rest == window_maximum(rest, radius)) & ~near
    return kept


def keypoints(scores, kept, threshold, border=4):
    """(N, 2) x y, best first, and the scores."""
    height, width = scores.shape
    y, x = np.nonzero(kept & (scores > threshold))
    inside = (x >= border) & (x < width - border) & (y >= border) & (y < height - border)
    x, y = x[inside], y[inside]
    order = np.argsort(-scores[y, x], kind="stable")
    return np.stack([x, y], 1)[order], scores[y, x][order]


def sample(features, points):
    """Descriptors of network pixels: bilinear, zeros outside, of unit length."""
    _, height, width = features.shape
    padded = np.pad(features, ((0, 0), (1, 2), (1, 2)))
    column = (points[:, 0] - 3.5) * (width - 1) / (8 * width - 4.5)
    row = (points[:, 1] - 3.5) * (height - 1) / (8 * height - 4.5)
    left, top = np.floor(column).astype(int), np.floor(row).astype(int)
    a, b = column - left, row - top
    found = sum(weight * padded[:, top + 1 + down, left + 1 + right]
                for down, right, weight in ((0, 0, (1 - a) * (1 - b)), (0, 1, a * (1 - b)),
                                            (1, 0, (1 - a) * b), (1, 1, a * b)))
    return (found / np.linalg.norm(found, axis=0)).T
