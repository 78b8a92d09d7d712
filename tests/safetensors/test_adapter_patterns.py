"""PEFT's patterns: the same answers as PEFT's rule gives, and an end in good time whatever the key."""

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lattice_safetensors.adapter_patterns import ModulePattern, PatternSyntaxError, PatternTable

PATHS = [
    "model.layers.0.self_attn.q_proj",
    "model.layers.1.self_attn.q_proj",
    "model.layers.10.self_attn.q_proj",
    "model.layers.1.mlp.down_proj",
    "model.language_model.layers.2.linear_attn.in_proj_qkv",
    "lm_head",
    "q_proj",
]
KEYS = [
    "q_proj",
    "proj",
    "lm_head",
    "model.layers.0.self_attn.q_proj",
    "layers.1",
    "self_attn.q_proj",
    "self.attn.q.proj",
    ".*",
    r".*\.q_proj",
    "^q_proj",
    "^model.layers.0.*",
    r"^model\.layers\.1\.mlp\.down_proj",
    r"^model\.layers\.1\.mlp\.down_proj$",
    r"layers\.\d+\.mlp\.down_proj",
    r"layers\.[01]\.self_attn\.q_proj",
    r"layers\.[^0]\.self_attn\.q_proj",
    r"layers\.(0|10)\.(?:self_attn|mlp)\.q_proj",
    r"layers\.\d{2}\.self_attn\.q_proj",
    r"layers\.\d{1,2}\.self_attn\.q_proj",
    r"layers\.1{1,}0?\.self_attn\.q_proj",
    r"layers\.\d{,1}\.self_attn\.q_proj",
    "(q|k|v)_proj",
    "q_proj|lm_head",
    "q_proj|",
    "x*",
    r"\w+_proj",
    r"\S*?down_proj",
    "q_pro.",
    "q-proj",
    r"\Dlm_head",
    "()",
    "(a|b*)*q_proj",
    "model$",
    "lm$_head",
    "[]x]q_proj",
    r"[\w.]+",
]


def by_rule(key, path):
    """PEFT's own rule, by the standard library."""
    return re.match(rf"(.*\.)?({key})$", path) is not None


@pytest.mark.parametrize("key", KEYS)
def test_a_key_matches_what_it_matches_in_peft(key):
    pattern = ModulePattern(key)
    assert [path for path in PATHS if pattern.matches(path)] == [path for path in PATHS if by_rule(key, path)]


def test_the_keys_above_are_worth_testing():
    matched = {key: sum(by_rule(key, path) for path in PATHS) for key in KEYS}
    assert sum(bool(count) for count in matched.values()) > len(KEYS) / 2
    assert any(0 < count < len(PATHS) for count in matched.values())


ATOMS = st.sampled_from(["a", "b", r"\.", ".", "[ab]", "[^a]", r"\w", "^", "$"])
EXPRESSIONS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: f"({'|'.join(parts)})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{0,1}", "*?"])).map(
            lambda pair: f"({pair[0]}){pair[1]}"
        ),
    ),
    max_leaves=6,
)


@settings(deadline=None, max_examples=300)
@given(key=EXPRESSIONS, path=st.text("ab.", max_size=8))
def test_any_expression_matches_what_the_standard_library_matches(key, path):
    assert ModulePattern(key).matches(path) == by_rule(key, path)


@pytest.mark.parametrize(
    "key", ["(a+)+b", "(a*)*b", "(a|a)*b", "(.*.*)*b", "(a?){30}a{30}b", "((a{0,9}){0,9}){0,9}b", "a*" * 500 + "b"]
)
def test_no_key_takes_long(key):
    path = "a" * 200
    started = time.process_time()
    assert not ModulePattern(key).matches(path)
    assert time.process_time() - started < 10


@pytest.mark.parametrize(
    ("key", "cause"),
    [
        ("(a", "a group is not closed"),
        ("a)", r"its '\)' at 1 closes nothing"),
        ("*a", r"its '\*' at 0 repeats nothing"),
        ("a**", r"its '\*' at 2 repeats a repeat"),
        ("a*+", r"its '\+' at 2 repeats a repeat"),
        ("a{", r"its '{' at 1 begins no count"),
        ("a{,}", r"its '{' at 1 begins no count"),
        ("a{2,1}", r"its count \{2,1\} ends before it begins"),
        ("[a", "a class is not closed"),
        ("[b-a]", "is no class: bad character range"),
        ("[[a]", r"the class \[\[a\] is not possible"),
        (r"(a)\1", r"the escape \\1 is not possible"),
        (r"\bq", r"the escape \\b is not possible"),
        ("a\\", r"the escape \\ is not possible"),
        ("(?=a)", r"only the groups \(...\) and \(\?:...\) are possible"),
        ("(?i)a", "only the groups"),
        ("a" * 1025, "it has 1025 characters, at most 1024 are possible"),
        ("(" * 17 + "a" + ")" * 17, "nested more than 16 deep"),
        ("(a{100}){100}", "it needs more than 4096 steps"),
        ("((){9999}){9999}", "it repeats an empty group"),
        ("((a{0}){9999}){9999}", "it repeats an empty group"),
    ],
)
def test_what_is_no_expression_or_asks_for_more_is_refused(key, cause):
    with pytest.raises(PatternSyntaxError, match=cause):
        ModulePattern(key)


def test_the_first_key_that_matches_gives_the_value():
    table = PatternTable({r"layers\.\d+\.a": 1, "layers.0.a": 2, "b": 3, "x": 4, ".*": 5})
    assert [table.find(f"model.layers.0.{name}") for name in ("a", "b", "c")] == [1, 3, 5]
    assert PatternTable({"b": 3, r"\d": 4}).find("layers.a") is None
    assert PatternTable({}).find("layers.a") is None


def test_a_key_of_a_table_that_is_no_pattern_is_named():
    with pytest.raises(PatternSyntaxError, match=r"the key 'b\(' is no pattern that can be matched: a group is not closed"):
        PatternTable({"a": 1, "b(": 2})


def test_a_table_is_bounded_in_keys_and_memory():
    with pytest.raises(PatternSyntaxError, match="it has 65537 keys; at most 65536 are possible"):
        PatternTable(dict.fromkeys(map(str, range(65537)), 1))
    assert PatternTable(dict.fromkeys(map(str, range(65536)), 1)).find("layers.65535") == 1
    with pytest.raises(PatternSyntaxError, match="its expressions need more than 262144 steps together"):
        PatternTable({f"(a{{100}}){{40}}{number}": 1 for number in range(66)})


@pytest.mark.parametrize(("keys", "cost"), [(["a"], 1), (["a", "b"], 2), (["(a)"], 4), (["b", "a+"], 11)])
def test_the_searches_of_a_table_together_are_bounded(keys, cost):
    table = PatternTable(dict.fromkeys(keys, 1), work=3 * cost)
    assert [table.find("x") for _ in range(3)] == [None] * 3
    with pytest.raises(PatternSyntaxError, match="its expressions take too long for this many modules"):
        table.find("x")


def test_a_table_of_every_module_by_name_is_no_work_to_speak_of():
    paths = [f"model.layers.{layer}.self_attn.{name}_proj" for layer in range(100) for name in "qkvo"]
    table = PatternTable({path: number for number, path in enumerate(paths)}, work=1 << 17)
    assert [table.find(path) for path in paths] == list(range(400))
