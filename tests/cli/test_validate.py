"""tapetum validate: the format's rules, one edit at a time. The examples are written from the format's
description (its sections 1.9 and 1.10), the edits are its conformance list."""

import copy
import json
import pathlib
import random

import pytest
import yaml

GOLDEN = pathlib.Path("tests/golden/package").resolve()
BASE = yaml.safe_load((GOLDEN / "superpoint.yaml").read_text())
TWO = yaml.safe_load((GOLDEN / "hamer.yaml").read_text())
WIRE = json.loads((GOLDEN / "superpoint.json").read_text())
MISSING = object()


def edited(document, path, value):
    document = copy.deepcopy(document)
    at, parts = document, path.split(".")
    for part in parts[:-1]:
        at = at[int(part)] if isinstance(at, list) else at.setdefault(part, {})
    if value is MISSING:
        del at[parts[-1]]
    else:
        at[parts[-1]] = value
    return document


def text_of(document):
    return yaml.safe_dump(document, sort_keys=False)


@pytest.fixture
def check(program, tmp_path):
    """What the program says of a text: the JSON, or all its complaints."""
    def run(text, valid, name="manifest"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        result = program.run("validate", path, "--json", status=0 if valid else 1)
        return json.loads(result.stdout) if valid else result.stderr

    return run


# ---- valid ------------------------------------------------------------------------------------


def test_the_examples(program, check):
    one = check((GOLDEN / "superpoint.yaml").read_text(), True)
    assert one["profiles"] == [{
        "name": "default", "description": None, "hardware": "p150", "chips": 1, "mesh_device": "P150",
        "mesh": [1, 1], "port": 8000, "args": [], "env": BASE["serve"]["env"]}]
    assert one["weights"] == [{**BASE["weights"], "ignore_patterns": []}]
    assert one["app"] == "models.server.app:app" and one["mesh_shape_env"] == "TT_MESH_SHAPE"
    two = check((GOLDEN / "hamer.yaml").read_text(), True)
    assert two["default_profile"] == "p150" and [p["name"] for p in two["profiles"]] == ["p150", "p150-worker"]
    assert two["profiles"][0]["env"] == {
        "TT_FUSED": "1", "TT_METAL_VISIBLE_DEVICES": "0", "HAMER_DISPATCH": "auto"}
    wire = check((GOLDEN / "superpoint.json").read_text(), True)
    assert wire["published"] and {**wire, "published": False} == {**one, "published": False}
    said = program.run("validate", GOLDEN / "hamer.yaml").stdout
    assert said.startswith("hamer-p150: valid, schema 5.1, as its author writes it\n")
    assert "profile   p150 (default): p150, mesh P150 (1x1), 3 variables" in said


@pytest.mark.parametrize("hardware, mesh, shape", [
    ("p150", "P150", [1, 1]), ("p150x4", "P150x4", [1, 4]), ("p300", "P300", [1, 2]), ("P150X4", "QB2", [2, 2]),
    ("p300x2", "P300x2", [1, 4]), ("n300", "N300", [1, 2]), ("p150a", "P150", [1, 1]), ("p300c", "[1, 2]", [1, 2]),
    ("p150x8", "(2, 4)", [2, 4]), (" p150x32 ", "TG", [4, 8]), ("n150x8", "T3K", [1, 8])])
def test_boards_and_meshes(check, hardware, mesh, shape):
    document = edited(edited(BASE, "serve.hardware", hardware), "serve.mesh_device", mesh)
    profile = check(text_of(document), True)["profiles"][0]
    assert profile["mesh"] == shape and profile["chips"] == shape[0] * shape[1]


def test_what_may_be_left_out(check):
    assert check(text_of(edited(BASE, "runtime.mesh_shape_env", MISSING)), True)["mesh_shape_env"] == \
        "FLUX2_MESH_SHAPE"
    assert check(text_of(edited(BASE, "weights", "org/weights")), True)["weights"][0]["repo"] == "org/weights"
    document = edited(BASE, "auxiliary_weights", ["org/more", {"repo": "org/others", "revision": "v1"}])
    assert [w["repo"] for w in check(text_of(document), True)["weights"]] == [
        "magic-leap-community/superpoint", "org/more", "org/others"]
    schema = edited(edited(BASE, "schema", MISSING), "schema_version", "5.1")
    assert check(text_of(schema), True)["schema"] == "5.1"
    assert check(text_of(edited(BASE, "serve.port", "8001")), True)["profiles"][0]["port"] == 8001


def test_merging(check):
    """Mappings merge by key, all else is replaced, and what says nothing erases nothing."""
    document = copy.deepcopy(TWO)
    document["serve"].update(args=["--a", ["--b", 2], True], hardware="p150", port=8000)
    document["serve_profiles"] = [
        {"name": "same"}, {"name": "nothing", "args": [], "env": {}, "port": None},
        {"name": "other", "args": ["--c"], "env": {"TT_FUSED": "0", "NEW": "1"}, "hardware": "p150a",
         "port": 9000}]
    document["default_profile"] = "other"
    profiles = {p["name"]: p for p in check(text_of(document), True)["profiles"]}
    assert profiles["same"]["args"] == ["--a", "--b", "2", "true"]
    assert {**profiles["nothing"], "name": "same"} == profiles["same"]
    assert profiles["other"]["args"] == ["--c"] and profiles["other"]["port"] == 9000
    assert profiles["other"]["env"] == {"TT_FUSED": "0", "TT_METAL_VISIBLE_DEVICES": "0", "NEW": "1"}


def test_flat_and_one_default_profile(check):
    flat = check(text_of(BASE), True)
    document = edited(BASE, "serve_profiles", [{"name": "default", **BASE["serve"]}])
    del document["serve"]
    assert check(text_of(document), True) == flat


# ---- not valid --------------------------------------------------------------------------------


@pytest.mark.parametrize("path, value, says", [
    ("schema", 5.1, "quote it"), ("schema", "1", "unsupported manifest schema"),
    ("arch", "grayskull", "arch must be one of"), ("kind", "tensorrt", "kind must be one of"),
    ("repo", "superpoint", "repo must be a namespaced HF id"),
    ("weights.repo", "superpoint", "weights must be a namespaced HF id"),
    ("auxiliary_weights", ["more"], "auxiliary_weights must use namespaced HF ids"),
    ("auxiliary_weights", ["a/b", "a/b"], "duplicate weight repositories"),
    ("color", "red", "color: unknown key"), ("serve.prot", 1, "serve.prot: unknown key"),
    ("serve.capabilities", {"tool_praser": "x"}, "serve.capabilities.tool_praser: unknown key"),
    ("name", "../x", "is not a safe slug"), ("name", "My Model", "is not a safe slug"),
    ("name", "", "is not a safe slug"), ("name", ".hidden", "is not a safe slug"),
    ("name", 150, "must be a string"), ("name", MISSING, "name: is required"),
    ("runtime.app", MISSING, "requires runtime.app"), ("runtime.app", "models.server", "module.path:attribute"),
    ("runtime.app", "server.app:app", "no source.code entry ships server"),
    ("runtime.vllm", {}, "runtime key vllm is not valid for kind tt-dit-server"),
    *(("runtime.mesh_shape_env", value, "not a valid environment variable name")
      for value in ("2MESH", "a-b", "has space", "", "x=y", 7)),
    ("serve.mesh_device", "P150x9", "invalid mesh_device"), ("serve.mesh_device", "(0, 1)", "invalid mesh_device"),
    ("serve.mesh_device", "p150", "invalid mesh_device"),
    *(("serve.hardware", value, "is not a recognised board label")
      for value in ("p150x0", "wibble", "galaxy", "x4", "p150b7", "", "p")),
    ("serve.hardware", "QB2", "is a mesh_device SKU"), ("serve.hardware", "T3K", "is a mesh_device SKU"),
    ("serve.hardware", "t3k", "is not a recognised board label"),
    ("serve.mesh_device", "P150x4", "opens a 1x4 mesh (4 chips) but hardware p150 implies 1"),
    ("serve.hardware", MISSING, "hardware is required"), ("serve.mesh_device", None, "mesh_device is required"),
    ("serve_profiles", [{"name": "a"}, {"name": "b"}], "must name a default_profile"),
    ("serve_profiles", [{"name": "a"}, {"name": "a"}], "duplicate serve profile names: a"),
    ("default_profile", "other", "names no profile; available: default"),
    ("source.code", ["/etc/passwd"], "must be relative to the tt-metal tree"),
    ("source.code", ["a/../../b"], "must be relative to the tt-metal tree"), ("source.code", [], "at least one"),
    ("source.extra_code.0.paths", ["../x"], "must be relative to their root"),
    ("serve.env.TT_FUSED", 1, "serve.env.TT_FUSED: must be a string, and 1 is a number: quote it"),
    ("serve.env", None, "must be a mapping"), ("serve.port", "high", "whole number"),
    ("serve.port", True, "whole number"), ("serve.args", [{"a": 1}], "serve.args[0]"),
    ("serve.args", [["a", ["b"]]], "serve.args[0][1]"), ("source", MISSING, "source: is required")])
def test_one_edit(check, path, value, says):
    assert says in check(text_of(edited(BASE, path, value)), False)


def test_kinds_that_are_only_recognised(check):
    document = edited(edited(BASE, "kind", "vllm-plugin"), "runtime", {"vllm": {"version": "1"}})
    assert "max_num_seqs is required" in check(text_of(document), False)
    document["serve"].update(max_num_seqs=8, block_size=64)
    assert check(text_of(document), True)["kind"] == "vllm-plugin"


def test_every_shape_problem_is_told_with_its_place(check):
    text = 'name: ../x\nrepo: 5\nserve:\n  prot: 1\n  env: {A: 1}\n'
    said = check(text, False)
    for line in ("line 1, column 7: name: ../x is not a safe slug", "line 2, column 7: repo: must be a string",
                 "line 4, column 9: serve.prot: unknown key", "line 5, column 12: serve.env.A: must be a string",
                 "weights: is required", "arch: is required", "source: is required", "and 6 more"):
        assert line in said, said


@pytest.mark.parametrize("path, value, says", [
    ("schema_version", "7", "this tool reads 5, 5.1, 6"), ("schema_version", "1", "re-publish"),
    ("schema_version", "5", "use tt-model for it"), ("schema_version", "6", "use tt-model for it"),
    ("schema_version", 5.1, "unsupported"), ("schema_version", MISSING, "is required"),
    ("name", "../../etc", "is not a safe slug"), ("name", "a/b", "is not a safe slug"),
    ("container", None, "container: must be a mapping"), ("container.image.tag", MISSING, "is required"),
    ("container.serve_profiles", [], "declares no serve profiles"),
    ("container.serve.native", True, "container.serve.native: unknown key"),
    ("container.serve_profiles.0.native", True, "native: unknown key"),
    ("container.serve.capabilities", {"native": 1}, "native: unknown key")])
def test_published_edits(check, path, value, says):
    assert says in check(json.dumps(edited(WIRE, path, value)), False)


def test_published_tolerance(check):
    for path in ("extra", "weights.extra", "container.extra", "container.image.extra", "container.runtime.x"):
        assert check(json.dumps(edited(WIRE, path, 1)), True)["name"] == "superpoint-p150"
    document = edited(WIRE, "weights", {"repo": "org/name"})
    assert check(json.dumps(document), True)["weights"][0]["repo"] == "org/name"
    assert check(json.dumps(edited(WIRE, "weights", None)), True)["weights"] == []
    # An old board label says nothing here: whoever published it has checked it.
    assert check(json.dumps(edited(WIRE, "container.serve.hardware", "galaxy")), True)["profiles"][0]["chips"] == 0


# ---- hostile ----------------------------------------------------------------------------------


@pytest.mark.parametrize("text, says", [
    (b"", "does not contain a YAML mapping"), (b"- a\n", "does not contain a YAML mapping"),
    (b"a: b: c\n", "not valid YAML"), (b"a: [1, 2\n", "not valid YAML"), (b"\xff\xfe\x00", "not valid YAML"),
    (b"a: \x00b\n", "not valid YAML"), (b'name: "a\\0b"\n', "a zero byte"), (b"a: 1\n---\nb: 2\n", "a second document"),
    (b"a: &x 1\nb: *x\n", "aliases"), (b"a: !!python/object:os.system x\n", "tags"),
    (b"a: !!map {}\n", "tags"), (b"5: x\n", "a key must be a string"), (b"[a]: x\n", "a key must be a string"),
    (b"[" * 100, "nested over 32"), (b"a: [" + b"1," * 30_000 + b"]", "20000 values"),
    (b"{" + b'"a":{' * 100 + b"}" * 101, "nesting"), (b"{", "it ends early"), (b"{} x", "not valid JSON"),
    (b'{"a":1,}', "not valid JSON"), (b'{"a": NaN}', "not finite"), (b'{"name": "a\\u0000b"}', "zero byte"),
    (b'{"a": "\xff"}', "not valid JSON"), (b"x" * (1 << 20) + b"y", "1048576")],
    ids=range(23))
def test_hostile_files(check, text, says):
    assert says in check(text, False)


def test_a_manifest_of_100_megabytes(program, tmp_path):
    path = tmp_path / "huge.yaml"
    with open(path, "wb") as file:
        file.truncate(100 << 20)
    assert "1048576" in program.run("validate", path, status=1).stderr
    assert "manifest not found" in program.complaint("validate", tmp_path / "none", status=1)
    program.complaint("validate", tmp_path, status=1)


def test_scalars_are_pyyamls(check):
    """What an unquoted word is, decides whether an environment's value is accepted. PyYAML's opinion of
    a few thousand words, chosen and at random, is ours."""
    kinds = {str: "text", bool: "a boolean", int: "a number", float: "a number", type(None): "null"}
    source = random.Random(5)
    words = """1 -1 +1 01 0o7 08 0x1F 0b10 1_000 1:30 1:30.5 5.1 .5 5. 1e5 1.0e5 1.0e+5 -.5 .inf -.INF .nan
        yes Yes YES yEs no on Off true TRUE ~ null Null nULL 2026-01-02 2026-1-2 2026-01-02T03:04:05Z
        2026-01-02 1:2 = y n 0 00 0.0 +.5 1__0 _1 190:20:30 0x 0b 1.2.3 v1 -- .""".split()
    words += ["".join(source.choice("0123456789.:_-+eExXbotruenlyfsTZ~") for _ in range(source.randint(1, 7)))
              for _ in range(3000)]
    wanted, lines = {}, []
    for i, word in enumerate(dict.fromkeys(words)):
        try:
            value = yaml.safe_load(f"x: {word}")["x"]
        except (yaml.YAMLError, ValueError, TypeError, KeyError, AttributeError):
            continue  # no scalar, or one that PyYAML trips over (a 13th month)
        if type(value) in (dict, list):
            continue
        wanted[f"K{i}"] = kinds.get(type(value), "a date")
        lines.append(f"    K{i}: {word}")
    text = text_of(edited(BASE, "serve.env", {"A": "1"})).replace("    A: '1'", "\n".join(lines))
    said = check(text, False)
    for key, kind in wanted.items():
        told = f"serve.env.{key}: must be a string, " in said
        assert told == (kind != "text"), (key, kind, lines)
        if told:
            line = next(line for line in said.splitlines() if f"serve.env.{key}: " in line)
            assert kind in line, line
