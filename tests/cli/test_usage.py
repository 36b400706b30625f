"""Help, man pages and what is said to a wrong command line."""

import pathlib
import re

import pytest

VERBS = ["superpoint", "match", "hamer", "serve", "fetch", "convert", "synth", "check", "eval",
         "validate", "info"]


def options_of(text, pattern):
    found = re.findall(pattern, text, re.M)
    assert len(found) == len(set(found)), "an option is listed twice"
    return {(letter or "", name, argument or "") for letter, name, argument in found}


def help_options(text):
    assert text.count("\nOptions:\n") == 1
    section = text.split("\nOptions:\n")[1].split("\n\n")[0] + "\n"
    return options_of(section, r"^  (?:-(\w), |    )--([a-z-]+)(?: ([A-Za-z]+))? ")


def man_options(verb):
    text = pathlib.Path(f"man/tapetum-{verb}.1.scd").read_text()
    section = re.search(r"^# OPTIONS\n(.*?)^# ", text, re.M | re.S).group(1)
    return options_of(section, r"^(?:\*-(\w)\*, )?\*--([a-z-]+)\*(?: _(\w+)_)?$")


@pytest.mark.parametrize("verb", VERBS)
def test_help_and_man_page_name_the_same_options(program, verb):
    shown = help_options(program.run(verb, "--help").stdout)
    assert shown == man_options(verb)
    assert ("h", "help", "") in shown and (verb in ("synth", "validate") or len(shown) > 2)


@pytest.mark.parametrize("verb", VERBS)
def test_help_teaches(program, verb):
    result = program.run(verb, "--help")
    assert result.stderr == "" and f"  tapetum {verb}" in result.stdout, "there are examples"
    assert f"\nUsage: tapetum {verb} " in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 100
    assert program.run("help", verb).stdout == result.stdout
    assert program.run(verb, "-h").stdout == result.stdout


def test_help_of_the_whole(program):
    text = program.run("--help").stdout
    assert program.run("-h").stdout == text == program.run("help").stdout
    listed = re.search(r"^Verbs:\n(.*?)\n\n", text, re.M | re.S).group(1)
    assert re.findall(r"^  ([a-z]+)", listed, re.M) == VERBS + ["help"]
    page = pathlib.Path("man/tapetum.1.scd").read_text()
    assert re.findall(r"^\*([a-z]+)\*(?: _verb_)?\n\t", page, re.M) == VERBS + ["help"]


def test_version(program):
    version = re.search(r"project\(tapetum VERSION (\S+)",
                        pathlib.Path("CMakeLists.txt").read_text()).group(1)
    result = program.run("--version")
    assert result.stdout.startswith(f"tapetum {version} (") and result.stderr == ""
    assert result.stdout.count("\n") == 1


@pytest.mark.parametrize("words, says", [
    ([], "no verb"),
    (["points"], "'points'"),
    (["--verbose"], "'--verbose'"),
    (["help", "points"], "'points'"),
    (["superpoint"], "no picture"),
    (["superpoint", "x", "--sise", "8x8"], "--sise"),
    (["superpoint", "x", "-z"], "-z"),
    (["superpoint", "x", "--size"], "--size: needs a value"),
    (["superpoint", "x", "-k"], "-k: needs a value"),
    (["superpoint", "x", "--size", "100x100"], "multiples of 8"),
    (["superpoint", "x", "--size", "640"], "WIDTHxHEIGHT"),
    (["superpoint", "x", "--size", "8200x8"], "8192"),
    (["superpoint", "x", "--max-keypoints", "-2"], "from -1"),
    (["superpoint", "x", "--max-keypoints", "1e3"], "whole number"),
    (["superpoint", "x", "--max-keypoints", "99999999999999999999"], "whole number"),
    (["superpoint", "x", "--threshold", "1.5"], "from 0 to 1"),
    (["superpoint", "x", "--threshold", "nan"], "from 0 to 1"),
    (["superpoint", "x", "--nms-radius", "33"], "from 0 to 32"),
    (["superpoint", "x", "--nms", "double"], "single, iterative"),
    (["superpoint", "x", "--gray", "red"], "first, luma"),
    (["superpoint", "x", "--exif", "yes"], "ignore, apply"),
    (["superpoint", "x", "--coordinates", "center"], "ratio, centres"),
    (["superpoint", "x", "--threads", "257"], "from 0 to 256"),
    (["superpoint", "x", "--npz", ""], "empty"),
    (["superpoint", "x", "--json=yes"], "takes no value"),
    (["superpoint", "-", "-"], "once only"),
    (["superpoint", "x", "--isa", "mmx"], "mmx"),
    (["match", "a"], "two pictures"),
    (["match", "a", "b", "c"], "two pictures"),
    (["match", "-", "-"], "once only"),
    (["match", "a", "b", "--ratio", "2"], "from 0 to 1"),
    (["match", "a", "b", "--min-similarity", "-2"], "from -1 to 1"),
    (["serve"], "needs a model"),
    (["serve", "yolo"], "yolo"),
    (["serve", "superpoint", "--port", "65536"], "65535"),
    (["fetch"], "needs a model"),
    (["fetch", "yolo"], "superpoint, hamer"),
    (["synth", "superpoint"], "a file"),
    (["synth", "yolo", "x"], "superpoint, hamer"),
    (["synth", "hamer", "x", "--config", "huge"], "full, tiny"),
    (["synth", "superpoint", "x", "--config", "tiny"], "one size"),
    (["info", "x"], "no operand"),
    (["info", "--size", "native"], "one size"),
])
def test_wrong_command_lines(program, words, says):
    line = program.complaint(*words, status=2)
    assert says in line, line
    what_why_do = line.split(": ")
    assert len(what_why_do) >= 3, "what: why: what to do"
    if "--isa" not in words:
        assert "--help'" in what_why_do[-1]


def test_a_name_must_not_move_the_cursor(program):
    line = program.complaint("superpoint", "x", "--nms", "\x1b[2Jsingle", status=2)
    assert "\x1b" not in line and "?[2Jsingle" in line


def test_after_two_dashes_all_are_operands(program, weights, photo, tmp_path):
    (tmp_path / "--json").write_bytes(photo.read_bytes())
    text = program.run("superpoint", "-q", "-w", weights, "-s", "160x120", "--", "--json",
                       cwd=tmp_path).stdout
    assert text.startswith("--json: ")


def test_info(program, tmp_path):
    text = program.run("info", "--kernels", "--threads", "3").stdout
    facts = dict(re.findall(r"^(\w+) +(\S.*)$", text, re.M))
    assert facts["backend"] == "cpu" and facts["threads"].startswith("3 (")
    assert facts["isa"].split()[0] in ("scalar", "avx2", "avx512", "avx512vnni", "amx", "neon")
    for model in ("superpoint", "hamer"):
        assert f"tapetum fetch {model}" in facts[model]
    assert text.startswith(program.run("--version").stdout) and "winograd" in text
    scalar = program.run("info", environment={"TAPETUM_CPU": "scalar"}).stdout
    assert re.search(r"^isa +scalar \(", scalar, re.M)
    for model, name in (("superpoint", "SP_WEIGHTS_DIR"), ("hamer", "HAMER_WEIGHTS_DIR")):
        given = program.run("info", environment={name: str(tmp_path)}).stdout
        assert re.search(rf"^{model} +{re.escape(str(tmp_path))}$", given, re.M)


def test_info_plan(program, weights):
    text = program.run("info", "--plan", weights, "--size", "320x240").stdout
    rows = re.findall(r"^(\S+\.\S+) +(\S+) +\[([\d, ]+)\] -> \[([\d, ]+)\] +([\d.]+) MMAC$", text,
                      re.M)
    assert sum("conv" in kind for _, kind, *_ in rows) == 12
    # Multiply-adds of a convolution, counted here: outputs before a pool x inputs x kernel.
    for name, kind, before, after, count in rows:
        height, width, channels = map(int, before.split(", "))
        out = int(after.split(", ")[2])
        size = {"conv3x3": 9, "conv1x1": 1}.get(kind.split("+")[0], 0)
        assert float(count) == pytest.approx(height * width * channels * out * size / 1e6, abs=0.06)
    n_values = sum(int(n) for n in re.findall(r"^parameters (\d+)$", text, re.M))
    assert n_values == 1_300_865


def test_info_with_wrong_weights(program, photo):
    result = program.run("info", "--plan", photo, status=3)
    assert re.search(r"^tapetum: .*photo\.png: .*PNG", result.stderr)
