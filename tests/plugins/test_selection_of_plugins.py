import pytest

from lattice_core.errors import PluginError
from lattice_core.plugins import Selection, Status


@pytest.fixture
def host(site):
    site.good("first-dist", "first_module", "first")
    site.good("second-dist", "second_module", "second")

    def load(**selection):
        made = site.host(**selection)
        return made, {record.name: record for record in made.records}

    return load


@pytest.mark.parametrize("name", ["first_module", "first-dist", "First_Dist", "first-dist/first_module"])
def test_a_plugin_is_left_out_by_its_name_or_its_distribution(host, name):
    made, records = host(disabled=(name,))
    assert records["first_module"].status is Status.DISABLED
    assert records["first_module"].cause == f"-p no:{name}"
    assert records["second_module"].status is Status.LOADED
    assert made.unknown == ()


def test_a_plugin_that_is_left_out_is_not_imported(site):
    site.install("loud", "loud_module", "raise RuntimeError('imported')")
    (record,) = [record for record in site.host(disabled=("loud",)).records if record.name == "loud_module"]
    assert record.status is Status.DISABLED


def test_no_plugins_leaves_out_strangers_only(host):
    _, records = host(third_party=False)
    assert records["first_module"].cause == "--no-plugins"
    assert records["conformance"].status is Status.LOADED


def test_the_allow_list_covers_built_in_plugins(host):
    _, records = host(allowed=("first_module",))
    assert [name for name, record in records.items() if record.status is Status.LOADED] == ["first_module"]
    assert records["openai"].cause == "not in LATTICE_PLUGINS"


def test_leaving_out_wins_over_the_allow_list(host):
    _, records = host(allowed=("first_module",), disabled=("first_module",))
    assert records["first_module"].status is Status.DISABLED


def test_a_name_that_is_not_installed_is_an_error_that_names_the_nearest(host):
    made, _ = host(disabled=("first_modul",))
    with pytest.raises(PluginError, match=r"no plugin is named 'first_modul' \(did you mean first_module\?\)"):
        made.check_selection()


@pytest.mark.parametrize(
    ("value", "strict"), [("1", True), ("yes", True), ("0", False), ("off", False), ("", False), (None, False)]
)
def test_the_strict_variable_is_a_switch(value, strict):
    environ = {} if value is None else {"LATTICE_STRICT_PLUGINS": value}
    assert Selection.of(environ).strict is strict


def test_the_allow_list_comes_from_the_environment_and_an_empty_one_allows_all():
    assert Selection.of({"LATTICE_PLUGINS": "a, b,"}).allowed == ("a", "b")
    assert Selection.of({"LATTICE_PLUGINS": " "}).allowed is None
