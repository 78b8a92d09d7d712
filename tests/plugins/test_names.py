import pytest

from lattice_core.cli.session import registry_of
from lattice_core.errors import PluginError
from lattice_core.plugins import FIRST_PARTY, PluginHost, Selection, Status
from lattice_core.plugins.reserved import COMMANDS_OF_THE_CORE, RESERVED

PLUGIN = """
from lattice_core import hookimpl
from lattice_core.descriptors import *

@hookimpl
def {hook}():
    yield {spec}(name={name!r}, summary="s", factory=dict{more})
"""


def record_of(host, name):
    (record,) = [record for record in host.records if record.name == name]
    return record


@pytest.mark.parametrize(
    ("hook", "spec", "name", "more", "kind"),
    [
        ("lattice_backends", "BackendSpec", "mlx", "", "backend"),
        ("lattice_samplers", "SamplerSpec", "default", "", "sampler"),
        ("lattice_frontends", "FrontendSpec", "openai", "", "frontend"),
        ("lattice_loaders", "LoaderSpec", "gguf", ", probe=bool, looks_for='x'", "loader"),
        ("lattice_model_sources", "SourceSpec", "pypi", "", "source"),
        ("lattice_commands", "CommandSpec", "pull", ", arguments=bool", "command"),
    ],
)
def test_a_stranger_that_claims_a_first_party_name_fails(site, hook, spec, name, more, kind):
    site.install("stranger", "stranger_module", PLUGIN.format(hook=hook, spec=spec, name=name, more=more))
    record = record_of(site.host(), "stranger_module")
    assert record.status is Status.FAILED
    assert record.cause == f"the {kind} name {name!r} is reserved for lattice-engine"


def test_first_party_names_stay_reserved_while_their_plugin_is_left_out(site):
    site.install("stranger", "stranger_module", PLUGIN.format(hook="lattice_backends", spec="BackendSpec", name="mlx", more=""))
    assert record_of(site.host(disabled=("mlx",)), "stranger_module").status is Status.FAILED


def test_the_name_of_a_first_party_plugin_is_reserved_too(site):
    source = PLUGIN.format(hook="lattice_samplers", spec="SamplerSpec", name="mine", more="")
    site.install("stranger", "stranger_module", source, entry_points="[lattice]\nmlx = stranger_module\n")
    failed = next(record for record in site.host().records if record.module == "stranger_module")
    assert (failed.status, "reserved for lattice-engine" in failed.cause) == (Status.FAILED, True)


def test_a_reserved_name_is_free_for_parts_of_another_kind(site):
    site.install("stranger", "stranger_module", PLUGIN.format(hook="lattice_samplers", spec="SamplerSpec", name="mlx", more=""))
    assert record_of(site.host(), "stranger_module").status is Status.LOADED


@pytest.mark.parametrize("name", sorted(COMMANDS_OF_THE_CORE))
def test_no_plugin_may_bring_a_command_of_the_core(site, name):
    source = PLUGIN.format(hook="lattice_commands", spec="CommandSpec", name=name, more=", arguments=bool")
    site.install("stranger", "stranger_module", source)
    assert record_of(site.host(), "stranger_module").cause == f"the command {name!r} belongs to lattice itself"


def test_strangers_that_share_a_name_both_work_by_their_full_names(site):
    site.good("first-dist", "first_module", "shared")
    site.good("Second.Dist", "second_module", "shared")
    host = site.host(allowed=("first_module", "second_module"))
    registry = registry_of(host)
    with pytest.raises(PluginError) as caught:
        registry.find("sampler", "shared")
    message = str(caught.value)
    assert "'shared' is ambiguous" in message
    assert "first-dist 1.0 (plugin first_module)" in message
    assert "Second.Dist 1.0 (plugin second_module)" in message
    assert "first-dist/shared or Second.Dist/shared" in message
    assert registry.find("sampler", "first-dist/shared").plugin == "first_module"
    assert registry.find("sampler", "second-dist/shared").plugin == "second_module"
    assert registry.names("sampler") == ["Second.Dist/shared", "first-dist/shared"]


def test_everything_else_of_strangers_that_share_a_name_still_works(site):
    two = PLUGIN.format(hook="lattice_samplers", spec="SamplerSpec", name="shared", more="") + (
        '    yield SamplerSpec(name="own", summary="s", factory=dict)\n'
    )
    site.install("first-dist", "first_module", two)
    site.good("second-dist", "second_module", "shared")
    assert registry_of(site.host(allowed=("first_module", "second_module"))).find("sampler", "own").plugin == "first_module"


def test_a_full_name_is_also_accepted_where_the_bare_one_is_clear(site):
    site.good("first-dist", "first_module", "alone")
    registry = registry_of(site.host(allowed=("first_module",)))
    assert registry.find("sampler", "first-dist/alone") is registry.find("sampler", "alone")


def test_one_distribution_may_not_bring_a_name_twice(site):
    entry_points = "[lattice]\na = a_module\nb = b_module\n"
    source = PLUGIN.format(hook="lattice_samplers", spec="SamplerSpec", name="same", more="")
    site.install("double", "a_module", source, entry_points=entry_points)
    (site.path / "b_module.py").write_text(source)
    host = site.host()
    assert record_of(host, "a").status is Status.LOADED
    assert record_of(host, "b").cause == "the sampler 'same' is already registered by the plugin 'a'"


def test_every_name_of_the_first_party_is_reserved():
    host = PluginHost.load(Selection())
    claimed = {
        (provided.kind, provided.spec.name)
        for record in host.loaded
        if record.distribution == FIRST_PARTY
        for provided in record.provides
    }
    assert claimed
    missing = sorted((kind, name) for kind, name in claimed if name not in RESERVED[kind])
    assert missing == [], "add these to lattice_core/plugins/reserved.py"
