import pytest

from lattice_core.descriptors import Option
from lattice_core.errors import PluginError
from lattice_core.options import CORE_OPTIONS, CollisionError, OptionTable, bind


def test_one_record_gives_flag_variable_and_key():
    bound = bind(Option("kv-bits", "bits", aliases=("bits", "-b"), env_aliases=("BITS",)), "mlx", "backend 'mlx'")
    assert bound.flags == ("--mlx-kv-bits", "--bits", "-b")
    assert bound.variables == ("LATTICE_MLX_KV_BITS", "BITS")
    assert (bound.owner, bound.key) == ("mlx", "kv-bits")


def test_options_of_the_core_have_no_prefix_and_the_names_of_the_seeds():
    bound = {option.name: bind(option) for option in CORE_OPTIONS}
    assert bound["port"].flags == ("--port",)
    assert bound["port"].variables == ("LATTICE_PORT", "LATTICE_SERVE_PORT")
    assert bound["model"].variables == ("LATTICE_MODEL", "LATTICE_SERVE_MODEL")
    assert bound["model-dir"].variables == ("LATTICE_MODEL_DIR",)
    assert bound["tokenizer-dir"].flags == ("--tokenizer-dir", "--tokenizer")
    assert bound["tokenizer-dir"].variables == ("LATTICE_TOKENIZER_DIR",)


def test_an_ambiguous_owner_is_told_apart_by_its_distribution():
    bound = bind(Option("level", "x"), "My.Dist/fast_one", "x")
    assert bound.flags == ("--my-dist-fast-one-level",)
    assert bound.variables == ("LATTICE_MY_DIST_FAST_ONE_LEVEL",)


@pytest.mark.parametrize("alias", ["two words", "a=b", "", "--", "-9"])
def test_an_alias_that_cannot_be_a_flag_is_refused(alias):
    with pytest.raises(PluginError, match="cannot be a flag"):
        bind(Option("level", "x", aliases=(alias,)), "own", "x")


@pytest.mark.parametrize(
    "alias", ["help", "version", "no-plugins", "-p", "-h", "port", "no-json", "own-other", "no-own-switch"]
)
def test_a_flag_that_is_taken_is_refused_with_both_names(alias):
    table = OptionTable()
    table.add(bind(option) for option in CORE_OPTIONS)
    table.add(
        [bind(Option("other", "x"), "own", "sampler 'own'"), bind(Option("switch", "x", type="bool"), "own", "sampler 'own'")]
    )
    before = list(table)
    with pytest.raises(CollisionError, match=r"is claimed both by .* and by sampler 'late'"):
        table.add(
            [
                bind(Option("fine", "x"), "late", "sampler 'late'"),
                bind(Option("x", "x", aliases=(alias,)), "late", "sampler 'late'"),
            ]
        )
    assert list(table) == before
    assert table.find_flag("--late-fine") is None


def test_the_negation_of_a_switch_collides_with_an_option_of_that_name():
    table = OptionTable()
    table.add([bind(Option("off", "x", aliases=("no-cache",)), "own", "a")])
    with pytest.raises(CollisionError, match="--no-cache is claimed both by a and by b"):
        table.add([bind(Option("cache", "x", type="bool", aliases=("cache",)), "late", "b")])
