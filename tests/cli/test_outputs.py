"""Where input comes from and results go: files, folders, pipes, terminals, and what goes wrong."""

import contextlib
import json
import os
import pty
import re
import resource
import shutil
import signal
import subprocess
import tempfile
import threading

import numpy as np
import pytest
from PIL import Image

from conftest import LONG, SMALL, scene, without_times


@pytest.fixture()
def quick(program, weights):
    """The words of a small, silent run."""
    return ("superpoint", "-q", "-w", weights, *SMALL)


def lines_of(result):
    return [json.loads(line) for line in result.stdout.splitlines()]


# ---- inputs ------------------------------------------------------------------------------------

def test_several_files_in_their_order(program, quick, photo, folder):
    paths = [photo, folder / "b.jpg", folder / "a.png"]
    answers = lines_of(program.run(*quick, "--json", *paths))
    assert [answer["file"] for answer in answers] == list(map(str, paths))
    alone = [program.points(*quick[1:], path) for path in paths]
    assert list(map(without_times, answers)) == list(map(without_times, alone))


def test_a_folder_goes_by_name_and_survives_a_broken_file(program, quick, folder):
    result = program.run(*quick, "--json", folder, status=1)
    assert [answer["file"] for answer in lines_of(result)] == [
        f"{folder}/{name}" for name in ("a.png", "b.jpg", "d.PNG")]
    assert re.fullmatch(rf"tapetum: {re.escape(str(folder))}/c\.png: PNG: .*\n", result.stderr)


def test_the_content_decides_not_the_name(program, quick, folder, tmp_path):
    shutil.copy(folder / "b.jpg", tmp_path / "b.png")
    assert program.points(*quick[1:], tmp_path / "b.png")["num_keypoints"] > 0


def test_standard_input(program, quick, photo):
    expected = program.points(*quick[1:], photo)
    piped = program.points(*quick[1:], "-", input=photo.read_bytes())
    with open(photo, "rb") as stream:
        redirected = program.points(*quick[1:], "-", stdin=stream)
    assert piped["file"] == redirected["file"] == "-"
    assert without_times(piped) == without_times(redirected) == without_times(expected)
    assert "standard input" in program.complaint(*quick, "-", status=1, input=b"")


def test_folders_without_pictures_and_missing_files(program, quick, photo, tmp_path):
    assert "no picture" in program.complaint(*quick, tmp_path, status=1)
    missing = tmp_path / "missing.png"
    result = program.run(*quick, "--json", missing, photo, tmp_path, status=1)
    assert [answer["file"] for answer in lines_of(result)] == [str(photo)]
    assert f"tapetum: {missing}: " in result.stderr and result.stderr.count("\n") == 2


@pytest.mark.parametrize("content, says", [
    (b"", "empty"), (b"GIF89a" + bytes(50), "GIF"), (b"II*\0" + bytes(50), "TIFF"),
    (b"<!DOCTYPE html><html>", "neither JPEG, PNG nor WebP")])
def test_no_pictures(program, quick, tmp_path, content, says):
    (tmp_path / "x.png").write_bytes(content)
    line = program.complaint(*quick, tmp_path / "x.png", status=1)
    assert says in line and "x.png" in line


def test_a_truncated_picture(program, quick, folder, tmp_path):
    whole = (folder / "b.jpg").read_bytes()
    (tmp_path / "cut.jpg").write_bytes(whole[:len(whole) // 2])
    assert "truncated" in program.complaint(*quick, tmp_path / "cut.jpg", status=1)


def test_names_that_are_no_utf8(program, quick, photo, tmp_path):
    name = os.fsencode(tmp_path) + b"/a\xffb\n\".png"
    shutil.copy(photo, name)
    answer = program.points(*quick[1:], os.fsdecode(name))
    assert answer["file"] == f'{tmp_path}/a\ufffdb\n".png'


def test_extremes(program, quick, tmp_path):
    for size in ((1, 1), (1, 500), (500, 1), (7, 9)):
        scene(*size, 11).save(tmp_path / "x.png")
        answer = program.points(*quick[1:], tmp_path / "x.png", "-k", "3")
        assert answer["original_size"] == {"width": size[0], "height": size[1]}


# ---- weights -----------------------------------------------------------------------------------

def test_no_weights(program, photo):
    line = program.complaint("superpoint", photo, status=3)
    assert "tapetum fetch superpoint" in line and "--weights" in line and "non-commercial" in line


@pytest.mark.parametrize("content, says", [
    (b"", "empty"), (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "LFS"),
    (b"<!DOCTYPE html><html>sign in</html>", "HTML")])
def test_wrong_weights(program, photo, tmp_path, content, says):
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    line = program.complaint("superpoint", photo, "-w", path, status=3)
    assert says in line and str(path) in line


def test_weights_from_the_environment(program, weights, photo, tmp_path):
    given = program.points(photo, *SMALL, "-w", weights)
    shutil.copy(weights, tmp_path / "model.safetensors")
    for path in (weights, tmp_path):
        found = program.points(photo, *SMALL, environment={"SP_WEIGHTS_DIR": str(path)})
        assert without_times(found) == without_times(given)
    chosen = program.points(photo, *SMALL, "-w", weights, environment={"SP_WEIGHTS_DIR": "/none"})
    assert chosen["scores"] == given["scores"], "--weights comes first"


# ---- pictures and archives ---------------------------------------------------------------------

def test_draw(program, quick, photo, tmp_path):
    before = np.asarray(Image.open(photo), int)
    for name, kind in (("p.png", "PNG"), ("p.jpg", "JPEG"), ("p.JPEG", "JPEG")):
        program.run(*quick, photo, "--draw", tmp_path / name)
        with Image.open(tmp_path / name) as drawn:
            assert (drawn.format, drawn.size) == (kind, (320, 240))
    answer = program.points(*quick[1:], photo, "-d", tmp_path / "few.png", "-k", "4")
    changed = np.abs(np.asarray(Image.open(tmp_path / "few.png").convert("RGB"), int) -
                     before).max(2) > 0
    y, x = np.mgrid[:240, :320]
    near = np.zeros((240, 320), bool)
    for px, py in answer["keypoints"]:
        assert changed[max(int(py) - 3, 0):int(py) + 4, max(int(px) - 3, 0):int(px) + 4].any()
        near |= np.hypot(x - px, y - py) < 40
    assert not changed[~near].any(), "only points are drawn"
    program.run(*quick, photo, "-d", tmp_path / "none.png", "--threshold", "1")
    assert np.array_equal(np.asarray(Image.open(tmp_path / "none.png").convert("RGB")), before)


def test_draw_turns_with_the_points(program, quick, tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    scene(176, 120, 9).save(tmp_path / "turned.jpg", exif=exif.tobytes())
    for how, size in (("ignore", (176, 120)), ("apply", (120, 176))):
        program.run(*quick, tmp_path / "turned.jpg", "--exif", how, "-d", tmp_path / "drawn.png")
        with Image.open(tmp_path / "drawn.png") as drawn:
            assert drawn.size == size


def test_results_of_a_folder(program, quick, folder, tmp_path):
    program.run(*quick, folder, "--npz", tmp_path, "--draw", f"{tmp_path}/", status=1)
    names = ("a.png", "b.jpg", "d.PNG")
    assert sorted(os.listdir(tmp_path)) == sorted(
        name + ending for name in names for ending in (".npz", ".png"))
    for name in names:
        with Image.open(folder / name) as before, Image.open(tmp_path / f"{name}.png") as after:
            assert before.size == after.size and after.format == "PNG"
        answer = program.points(*quick[1:], folder / name)
        with np.load(tmp_path / f"{name}.npz") as arrays:
            assert np.array_equal(arrays["scores"], np.float32(answer["scores"]))


def test_one_picture_of_a_folder_goes_to_a_folder_too(program, quick, photo, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    shutil.copy(photo, tmp_path / "in")
    program.run(*quick, tmp_path / "in", "--npz", tmp_path / "out")
    assert os.listdir(tmp_path / "out") == ["photo.png.npz"]


def test_targets_that_are_refused_before_work(program, quick, photo, folder, tmp_path):
    file = tmp_path / "file"
    file.write_bytes(b"mine")
    for target in (file, tmp_path / "none"):
        line = program.complaint(*quick, photo, folder / "a.png", "--npz", target, status=2)
        assert str(target) in line and "folder" in line
    line = program.complaint(*quick, photo, photo, "--npz", tmp_path, status=2)
    assert "one name" in line
    assert file.read_bytes() == b"mine" and os.listdir(tmp_path) == ["file"]


def test_what_is_no_regular_file_is_never_replaced(program, quick, weights, photo, tmp_path):
    fifo = tmp_path / "fifo.png"
    os.mkfifo(fifo)
    for words in ((*quick, photo, "--npz", fifo), (*quick, photo, "--draw", fifo),
                  ("match", photo, photo, "-q", "-w", weights, *SMALL, "--draw", fifo),
                  ("synth", "superpoint", fifo)):
        assert "regular file" in program.complaint(*words, status=2)
        assert fifo.is_fifo() and os.listdir(tmp_path) == ["fifo.png"]
    assert program.complaint(*quick, photo, "--npz", tmp_path, status=2)


# ---- what can't be written ---------------------------------------------------------------------

def unchanged_after(program, directory, *words, **more):
    """Runs words, which must fail, and leave `old.npz` and nothing else in directory."""
    old = os.path.join(directory, "old.npz")
    result = program.run(*words, status=1, **more)
    assert result.stdout == "" and old in result.stderr and result.stderr.count("\n") == 1, result
    with open(old, "rb") as file:
        assert file.read() == b"old"
    assert os.listdir(directory) == ["old.npz"], "no temporary file stays"
    return result.stderr


def test_a_missing_folder(program, quick, photo, tmp_path):
    target = tmp_path / "none" / "points.npz"
    assert str(target) in program.complaint(*quick, photo, "--npz", target, status=1)
    assert os.listdir(tmp_path) == []


def limit_file_size():
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # so that write() says EFBIG
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))


def test_a_file_size_limit(program, quick, photo, tmp_path):
    (tmp_path / "old.npz").write_bytes(b"old")
    unchanged_after(program, tmp_path, *quick, photo, "--npz", tmp_path / "old.npz",
                    preexec_fn=limit_file_size)


def test_a_full_disk(program, quick, photo, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "none", disk],
                      capture_output=True).returncode != 0:
        pytest.skip("needs the right to mount a small disk")
    try:
        (disk / "old.npz").write_bytes(b"old")
        said = unchanged_after(program, disk, *quick, photo, "--npz", disk / "old.npz")
        assert "No space left" in said
        os.rename(disk / "old.npz", disk / "old.png")
        line = program.complaint(*quick, photo, "--draw", disk / "old.png", status=1)
        assert "No space left" in line and os.listdir(disk) == ["old.png"]
        line = program.complaint("synth", "superpoint", disk / "w.safetensors", status=1)
        assert "No space left" in line and os.listdir(disk) == ["old.png"]
    finally:
        subprocess.run(["umount", disk], check=True)


def test_no_right_to_write(program, weights, photo):
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        readable = [shutil.copy(path, directory) for path in (photo, weights)]
        for path in readable:
            os.chmod(path, 0o644)
        locked = os.path.join(directory, "locked")
        os.mkdir(locked)
        with open(os.path.join(locked, "old.npz"), "wb") as file:
            file.write(b"old")
        os.chmod(locked, 0o555)
        someone = {"user": 65534} if os.geteuid() == 0 else {}  # root may write anywhere
        try:
            said = unchanged_after(program, locked, "superpoint", readable[0], "-q", "-w",
                                   readable[1], *SMALL, "--npz", os.path.join(locked, "old.npz"),
                                   **someone)
        except PermissionError:
            pytest.skip("the program is built where other users may not go")
        finally:
            os.chmod(locked, 0o755)
        assert "ermission" in said


def test_standard_output_is_full(program, quick, photo):
    with open("/dev/full", "wb") as full:
        result = subprocess.run(program.command(*quick, "--json", photo), stdout=full, timeout=LONG,
                                stderr=subprocess.PIPE, env=program.environment)
    assert result.returncode == 1
    assert result.stderr.startswith(b"tapetum: standard output: cannot write: ")


def test_a_reader_that_leaves(program, quick, photo):
    """As `tapetum ... | head -1`: it ends by SIGPIPE or says so, and does not crash."""
    reader, writer = os.pipe()
    process = subprocess.Popen(program.command(*quick, "--json", *[photo] * 6), stdout=writer,
                               stderr=subprocess.PIPE, env=program.environment)
    os.close(writer)
    os.read(reader, 100)
    os.close(reader)
    _, said = process.communicate(timeout=LONG)
    assert process.returncode in (-signal.SIGPIPE, 1), said
    assert said == b"" or said.startswith(b"tapetum: standard output: cannot write: ")


# ---- the bar -----------------------------------------------------------------------------------

def on_a_terminal(program, *words, status, stdout=subprocess.PIPE, **environment):
    """stderr on a terminal, stdout in a pipe or there too; what the pipe and the terminal got."""
    main, other = pty.openpty()
    process = subprocess.Popen(program.command(*words), stderr=other,
                               stdout=other if stdout is None else stdout,
                               stdin=subprocess.DEVNULL, env=program.environment | environment)
    os.close(other)
    shown = bytearray()

    def read():
        with contextlib.suppress(OSError):  # EIO: the other end is closed
            while block := os.read(main, 4096):
                shown.extend(block)

    thread = threading.Thread(target=read)
    thread.start()
    out = process.communicate(timeout=LONG)[0]
    thread.join(timeout=LONG)
    os.close(main)
    assert process.returncode == status, (out, shown)
    return (out or b"").decode(), shown.decode()


def test_the_bar_is_for_terminals(program, quick, weights, folder):
    loud = [word for word in quick if word != "-q"]
    out, shown = on_a_terminal(program, *loud, "--json", folder, status=1)
    assert len(out.splitlines()) == 3 and "\x1b" not in out, "results are not mixed with the bar"
    assert re.search(r"\r\x1b\[K\x1b\[36m\[[#-]{24}\]\x1b\[0m +\d+ %  ", shown)
    assert "\r\x1b[Ktapetum: " in shown, "the bar makes way for a complaint"
    assert shown.endswith("\r\x1b[K") or shown.rstrip().endswith("\r\x1b[K"), "and goes at the end"
    both = on_a_terminal(program, *loud, folder, status=1, stdout=None)[1].split("\r\n")
    results = [line for line in both if " points in " in line]
    assert len(results) == 3, "a result starts where the bar was taken off"
    assert all(f"\r\x1b[K{folder}/" in line for line in results)
    plain = on_a_terminal(program, *loud, folder, status=1, NO_COLOR="1")[1]
    assert "\x1b[36m" not in plain and "[--" in plain
    for words, more in (((*quick, folder), {}), ((*loud, folder), {"TERM": "dumb"})):
        assert "\x1b" not in on_a_terminal(program, *words, status=1, **more)[1]
    piped = program.run(*loud, folder, status=1)
    assert "\r" not in piped.stderr and "\x1b" not in piped.stderr
