import json

import pytest

TENSORS = {
    "model.embed_tokens.weight": ["BF16", [264, 64]],
    "model.layers.0.mlp.up_proj.weight": ["U32", [32, 64], [4, 32, "F16"]],
    "model.norm.weight": ["F32", [64]],
}


def test_it_says_what_the_checkpoint_holds_and_what_the_backend_makes_of_it(lattice_inspect):
    path = lattice_inspect.sketch(tensors=TENSORS, chat_template="{{ x }}", generation_config={"temperature": 0.6})
    found = lattice_inspect.report(path)
    assert (found["what"], found["path"], found["loadable"], found["problems"]) == ("model", str(path), True, [])
    assert (found["format"], found["architecture"], found["dtype"]) == ("sketch", "Sketch", "float32")
    assert (found["vocab_size"], found["context"]) == (264, 1000)
    assert found["tensors"]["count"] == 3
    assert found["tensors"]["bytes"] == 1234
    assert [row["kind"] for row in found["tensors"]["by_kind"]] == ["BF16", "4-bit, groups of 32, F16 scales", "F32"]
    assert found["tensors"]["quantization"] == [{"bits": 4, "group_size": 32, "scale_dtype": "F16", "count": 1}]
    assert "each" not in found["tensors"]
    assert found["memory"]["weights"] == 5_000_000
    assert found["tokenizer"]["kind"] == "BPE"
    assert (found["tokenizer"]["size"], found["tokenizer"]["added_tokens"]) == (259, 3)
    assert found["eos_ids"] == [{"id": 258, "token": "<|im_end|>"}]
    assert found["chat_template"] == {"characters": 7}
    assert found["generation_config"] == {"temperature": 0.6}


def test_the_memory_of_states_follows_the_context_and_the_rows(lattice_inspect):
    path = lattice_inspect.sketch()
    memory = lattice_inspect.report(path)["memory"]
    assert (memory["state_one_row"], memory["max_batch"], memory["state_all_rows"]) == (10_100, 16, 161_600)
    memory = lattice_inspect.report(path, "--context", 500, "--max-batch", 2, "--sketch-width", 3)["memory"]
    assert (memory["state_one_row"], memory["max_batch"], memory["state_all_rows"]) == (15_100, 2, 30_200)


def test_the_dtype_of_activations_can_be_asked_for(lattice_inspect):
    assert lattice_inspect.report(lattice_inspect.sketch(), "--dtype", "bfloat16")["dtype"] == "bfloat16"


def test_every_tensor_is_listed_where_that_is_asked_for(lattice_inspect):
    path = lattice_inspect.sketch(tensors=TENSORS)
    each = lattice_inspect.report(path, "--tensors")["tensors"]["each"]
    assert [(row["name"], row["shape"], row["bytes"]) for row in each] == [
        ("model.embed_tokens.weight", [264, 64], 33_792),
        ("model.layers.0.mlp.up_proj.weight", [32, 64], 1_280),
        ("model.norm.weight", [64], 256),
    ]
    assert "model.norm.weight [64] F32, 256 B" in lattice_inspect(path, "--tensors").stdout


def test_people_get_lines(lattice_inspect):
    path = lattice_inspect.sketch(tensors=TENSORS, config={"architectures": ["SketchForCausalLM"]})
    done = lattice_inspect(path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        f"model             {path}",
        "format            sketch",
        "architecture      Sketch (configuration: SketchForCausalLM)",
        "vocabulary        264 tokens",
        "context           1000 tokens",
        "activations       float32",
        "tensors           3, 1.23 kB as stored",
        "                  1 BF16: 16896 elements, 33.8 kB",
        "                  1 4-bit, groups of 32, F16 scales: 2048 elements, 1.28 kB",
        "                  1 F32: 64 elements, 256 B",
        "weights in memory 5 MB",
        "state in memory   10.1 kB for a row of 1000 tokens, 162 kB for 16 such rows",
        "                  100 B for each row and 10 B for each token",
        "tokenizer         BPE, 259 tokens, 3 added, 3 of them special",
        "end of sequence   258 <|im_end|>",
        "chat template     none",
        "generation config none",
    ]


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("missing", "1 tensors that the architecture needs are missing"),
        ("unexpected", "1 tensors are unknown to the architecture"),
        ("misshapen", "1 tensors have another shape than the configuration asks for"),
    ],
)
def test_tensors_that_do_not_fit_are_named_and_the_status_is_3(lattice_inspect, name, problem):
    path = lattice_inspect.sketch(tensors=TENSORS, description={name: ["model.layers.0.odd"]})
    found = lattice_inspect.report(path, status=3)
    assert (found["loadable"], found["problems"]) == (False, [problem])
    assert found["accounting"][name] == ["model.layers.0.odd"]
    assert found["tensors"]["count"] == 3
    done = lattice_inspect(path)
    assert done.returncode == 3
    assert f"problem           {problem}" in done.stdout.splitlines()
    assert any(line.split() == [name, "1:", "model.layers.0.odd"] for line in done.stdout.splitlines())


def test_tensors_that_are_known_and_not_used_are_no_problem(lattice_inspect):
    path = lattice_inspect.sketch(description={"skipped": [f"model.visual.{n}" for n in range(11)]})
    assert lattice_inspect.report(path)["loadable"] is True
    assert "11: model.visual.0, " in (text := lattice_inspect(path).stdout)
    assert "model.visual.7 and 3 more" in text


def test_what_is_known_is_printed_although_the_configuration_is_broken(lattice_inspect):
    path = lattice_inspect.sketch(tensors=TENSORS, fail="describe", config={"model_type": "sketch", "vocab_size": 264})
    found = lattice_inspect.report(path, status=3)
    assert found["problems"] == ["config.hidden_size is missing"]
    assert (found["loadable"], found["described"], found["tensors"]["count"]) == (False, False, 3)
    assert found["tokenizer"]["size"] == 259
    lines = lattice_inspect(path).stdout.splitlines()
    assert "architecture      configuration: sketch" in lines
    assert "problem           config.hidden_size is missing" in lines


def test_a_tokenizer_that_is_missing_does_not_hide_the_rest(lattice_inspect):
    path = lattice_inspect.sketch(tensors=TENSORS, tokenizer=False)
    found = lattice_inspect.report(path, status=3)
    assert found["problems"] == [f"{path} has no tokenizer"]
    assert found["memory"]["weights"] == 5_000_000
    assert "tokenizer" not in found


def test_a_list_of_tensors_that_cannot_be_read_does_not_hide_the_tokenizer(lattice_inspect):
    found = lattice_inspect.report(lattice_inspect.sketch(fail="tensors"), status=3)
    assert found["problems"][0].endswith("the index is torn")
    assert found["tokenizer"]["size"] == 259


def test_another_tokenizer_may_be_named(lattice_inspect):
    path = lattice_inspect.sketch(tokenizer=False)
    (lattice_inspect.folder / "tokenizer.json").write_text(
        json.dumps({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}})
    )
    assert lattice_inspect.report(path, "--tokenizer-dir", ".")["tokenizer"]["size"] == 1


def test_a_backend_with_a_bug_is_told_from_a_broken_model(lattice_inspect):
    found = lattice_inspect.report(lattice_inspect.sketch(fail="bug"), status=4)
    (problem,) = found["problems"]
    assert problem.startswith("the backend could not describe the model: ZeroDivisionError: by zero")


def test_a_backend_that_cannot_describe_leaves_open_whether_the_model_loads(lattice_inspect):
    path = lattice_inspect.sketch(tensors=TENSORS)
    found = lattice_inspect.report(path, backend="silent")
    assert (found["loadable"], found["described"], found["problems"]) == (None, False, [])
    assert found["notes"] == ["this backend cannot say what a model would be without loading it"]
    assert found["tensors"]["count"] == 3


def test_the_checkpoint_is_shown_where_no_backend_can_be_chosen(lattice_inspect):
    path = lattice_inspect.sketch(tensors=TENSORS)
    found = lattice_inspect.report(path, backend=None, status=4)
    assert found["problems"][0].startswith("several backends are available")
    assert found["tensors"]["count"] == 3


def test_a_model_that_is_not_there_is_one_line(lattice_inspect):
    done = lattice_inspect("./absent")
    assert (done.returncode, done.stdout) == (3, "")
    assert len(done.stderr.splitlines()) == 1
    assert "model directory not found" in done.stderr


def test_a_file_that_nobody_knows_is_one_line(lattice_inspect):
    (lattice_inspect.folder / "readme.txt").write_text("hello")
    done = lattice_inspect("./readme.txt", "--json")
    assert (done.returncode, done.stdout) == (3, "")
    assert "holds no model that a loader knows" in done.stderr


def test_control_characters_in_names_reach_no_terminal(lattice_inspect):
    path = lattice_inspect.sketch(tensors={"evil\x1b[2J\u202ename": ["F32", [1]]})
    text = lattice_inspect(path, "--tensors").stdout
    assert "evil?[2J?name" in text
    assert "\x1b" not in text


def test_an_adapter_is_told_from_a_model(lattice_inspect):
    path = lattice_inspect.folder / "mine.adapter"
    modules = {
        "layers.0.self_attn.q_proj": [4, 64, 96, 2.0],
        "layers.1.self_attn.q_proj": [8, 64, 96, 0.5],
        "layers.0.mlp.up_proj": [4, 64, 128, 2.0],
    }
    path.write_text(json.dumps(modules))
    found = lattice_inspect.report(path)
    assert found == {
        "what": "adapter",
        "path": str(path),
        "format": "sketched",
        "bytes": 77,
        "fingerprint": "f00d",
        "modules": 3,
        "kinds": {"q_proj": 2, "up_proj": 1},
        "ranks": [4, 8],
        "scales": [0.5, 2.0],
        "dtypes": ["BF16", "F32"],
    }
    each = lattice_inspect.report(path, "--tensors")["each"]
    assert each[0] == {"module": "layers.0.self_attn.q_proj", "rank": 4, "scale": 2.0, "in": 64, "out": 96}
    lines = lattice_inspect(path).stdout.splitlines()
    assert "modules           3: 2 q_proj, 1 up_proj" in lines
    assert "rank              4, 8" in lines


def test_a_path_that_holds_both_is_a_model(lattice_inspect):
    assert lattice_inspect.report(lattice_inspect.sketch())["what"] == "model"


def test_the_checkpoint_is_closed(lattice_inspect):
    assert lattice_inspect(lattice_inspect.sketch(say_closed=True)).stdout.startswith("closed\n")
