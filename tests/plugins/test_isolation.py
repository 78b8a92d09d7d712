import pytest

from lattice_core.errors import PluginError
from lattice_core.plugins import Status

IMPORTS = "from lattice_core import hookimpl\nfrom lattice_core.descriptors import *\n"
SAMPLER = 'SamplerSpec(name="half", summary="s", factory=dict)'

EMPTY = "from lattice_core import hookimpl\n@hookimpl\ndef lattice_samplers():\n    return []\n"
HALF = f"@hookimpl\ndef lattice_samplers():\n    yield {SAMPLER}\n"

BROKEN = {
    "import error": (
        "import there_is_no_such_module",
        "ModuleNotFoundError: No module named 'there_is_no_such_module' (broken.py:1)",
    ),
    "exit at import": ("import sys\nsys.exit(3)", "SystemExit: 3 (broken.py:2)"),
    "raise at import": ("x = 1\nraise RuntimeError('no\\nlicence')", "RuntimeError: no licence (broken.py:2)"),
    "base exception": ("class Odd(BaseException):\n    pass\nraise Odd", "Odd (broken.py:3)"),
    "unprintable": (
        "class Odd(Exception):\n    def __str__(self):\n        raise ValueError\nraise Odd",
        "Odd: (its message cannot be shown) (broken.py:4)",
    ),
    "syntax error": ("def f(:\n    pass", "SyntaxError: invalid syntax (broken.py:1)"),
    "raise in a hook": (f"{IMPORTS}@hookimpl\ndef lattice_loaders():\n    raise KeyError('x')", "KeyError: 'x' (broken.py:5)"),
    "exit in a hook": (f"{IMPORTS}@hookimpl\ndef lattice_loaders():\n    raise SystemExit", "SystemExit (broken.py:5)"),
    "raise after a record": (
        f"{IMPORTS}@hookimpl\ndef lattice_samplers():\n    yield {SAMPLER}\n    raise OSError('late')",
        "OSError: late (broken.py:6)",
    ),
    "raise in the second hook": (
        f"{IMPORTS}{HALF}@hookimpl\ndef lattice_backends():\n    raise OSError('late')",
        "OSError: late (broken.py:8)",
    ),
    "wrong record type": (
        f"{IMPORTS}@hookimpl\ndef lattice_backends():\n    yield {SAMPLER}",
        "lattice_backends returned a SamplerSpec; it must return only BackendSpec",
    ),
    "one record instead of a list": (
        f"{IMPORTS}@hookimpl\ndef lattice_samplers():\n    return {SAMPLER}",
        "lattice_samplers returned a SamplerSpec; it must return an iterable of SamplerSpec",
    ),
    "nothing": (
        f"{IMPORTS}@hookimpl\ndef lattice_samplers():\n    [{SAMPLER}]",
        "lattice_samplers returned None; it must return an iterable of SamplerSpec",
    ),
    "misspelt hook": (
        f"{IMPORTS}@hookimpl\ndef lattice_sampler():\n    return []",
        "lattice_sampler is no hook (did you mean lattice_samplers?)",
    ),
    "unmarked hook": (
        f"{IMPORTS}def lattice_samplers():\n    return []",
        "lattice_samplers is not marked with lattice_core.hookimpl",
    ),
    "no hook at all": ("x = 1", "it implements no hook"),
    "wrapper": (
        f"{IMPORTS}@hookimpl(wrapper=True)\ndef lattice_samplers():\n    return (yield)",
        "lattice_samplers is a wrapper",
    ),
    "hook with an argument": (
        f"{IMPORTS}@hookimpl\ndef lattice_samplers(config):\n    return []",
        "hookimpl definition: lattice_samplers(config)",
    ),
    "another API version": (
        f"{IMPORTS}LATTICE_API_VERSION = 99\n@hookimpl\ndef lattice_samplers():\n    yield {SAMPLER}",
        "it is written for plugin API version 99; this Lattice has version 1",
    ),
    "invalid name": (
        f"{IMPORTS}@hookimpl\ndef lattice_samplers():\n    yield SamplerSpec(name='Half Done', summary='s', factory=dict)",
        "ValueError: name 'Half Done' is not a name",
    ),
    "the same name twice": (
        f"{IMPORTS}@hookimpl\ndef lattice_samplers():\n    return [{SAMPLER}, {SAMPLER}]",
        "lattice_samplers returned the sampler 'half' twice",
    ),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_plugin_is_recorded_in_one_line_and_leaves_nothing_while_others_work(site, fault):
    source, cause = BROKEN[fault]
    site.install("broken-plugin", "broken", source)
    site.good("zz-plugin", "after", "neighbour")
    host = site.host()
    (broken,) = [record for record in host.records if record.name == "broken"]
    (after,) = [record for record in host.records if record.name == "after"]
    assert broken.status is Status.FAILED
    assert cause in broken.cause
    assert "\n" not in broken.cause
    assert broken.provides == ()
    assert (broken.distribution, broken.version) == ("broken-plugin", "1.0")
    assert [provided.spec.name for provided in after.provides] == ["neighbour"]
    assert any(record.name == "conformance" for record in host.records)


def test_an_interrupt_while_plugins_load_reaches_the_caller(site):
    site.install("broken-plugin", "broken", "raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        site.host()


def test_strict_mode_raises_with_the_cause(site):
    site.install("broken-plugin", "broken", "raise RuntimeError('no')")
    with pytest.raises(PluginError, match=r"plugin broken \(broken-plugin 1.0\) failed .*RuntimeError: no") as caught:
        site.host(strict=True, allowed=("broken",))
    assert isinstance(caught.value.__cause__, RuntimeError)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("[lattice]\nthis is not an entry point\n", "entry_points.txt: 'this is not an entry point' is not NAME = MODULE"),
        ("[lattice]\nodd = a-b c\n", "is not NAME = MODULE"),
        ("[lattice]\nodd = \n", "is not NAME = MODULE"),
        ("[lattice]\nodd = no_such_module_here\n", "ModuleNotFoundError"),
        ("[lattice]\nodd = json:no_such_attribute\n", "AttributeError"),
        ("[lattice]\nodd = json\nodd = json\n", "stands twice"),
        (b"[lattice]\nodd = \xff\xfe\n", "entry_points.txt cannot be read: UnicodeDecodeError"),
    ],
)
def test_garbage_in_entry_points_costs_only_its_own_distribution(site, text, cause):
    site.install("garbage", "unused", None, entry_points=text)
    site.good("zz-plugin", "after", "neighbour")
    host = site.host()
    failed = [record for record in host.failures if record.distribution == "garbage"]
    assert any(cause in record.cause for record in failed)
    assert "after" in [record.name for record in host.loaded]


def test_a_bad_line_costs_only_itself(site):
    site.install("half", "fine", None, entry_points="[lattice]\n???\nfine = fine\n[other]\nx\n")
    (site.path / "fine.py").write_text(EMPTY)
    statuses = {record.name: record.status for record in site.host().records if record.distribution == "half"}
    assert statuses == {"???": Status.FAILED, "fine": Status.LOADED}


def test_garbage_of_groups_that_are_not_ours_is_no_concern(site):
    site.install("other", "unused", None, entry_points="[console_scripts]\nnonsense\n")
    assert "other" not in [record.distribution for record in site.host().records]


def test_a_distribution_without_a_name_is_named_by_its_folder(site):
    site.install("nameless", "nameless_module", "x = 1", metadata="")
    (record,) = [record for record in site.host().records if record.name == "nameless_module"]
    assert record.distribution == "nameless-1.0"
    assert record.status is Status.FAILED


def test_a_distribution_that_stands_twice_on_the_path_counts_once(site, tmp_path, monkeypatch):
    site.good("twice", "twice_module", "twice")
    copy = tmp_path / "copy"
    copy.mkdir()
    monkeypatch.syspath_prepend(str(copy))
    other = type(site)(copy, monkeypatch)
    other.good("twice", "twice_module", "twice")
    assert [record.name for record in site.host().records].count("twice_module") == 1


def test_the_first_version_on_the_path_hides_a_later_one(site, tmp_path, monkeypatch):
    copy = tmp_path / "later"
    other = type(site)(copy, monkeypatch)
    other.install("twice", "twice_module", "raise RuntimeError", version="0.9")
    monkeypatch.syspath_prepend(str(copy))
    site.install("twice", "unused", None, entry_points="[console_scripts]\n", version="2.0")
    assert "twice" not in [record.distribution for record in site.host().records]


def test_two_entry_points_to_one_module_count_as_one_plugin(site):
    site.install("same", "same_module", None, entry_points="[lattice]\na = same_module\nb = same_module\n")
    (site.path / "same_module.py").write_text(EMPTY)
    first, second = (record for record in site.host().records if record.distribution == "same")
    assert first.status is Status.LOADED
    assert second.cause == "same_module is already registered as same/a"


def test_an_object_may_be_a_plugin(site):
    source = """
from lattice_core import hookimpl
from lattice_core.descriptors import SamplerSpec

class Plugin:
    @hookimpl
    def lattice_samplers(self):
        yield SamplerSpec(name="from-object", summary="s", factory=dict)

plugin = Plugin()
"""
    site.install("object-plugin", "object_module", source, entry_points="[lattice]\nobj = object_module:plugin\n")
    (record,) = [record for record in site.host().records if record.name == "obj"]
    assert [provided.spec.name for provided in record.provides] == ["from-object"]


def test_what_a_plugin_prints_while_it_loads_stays_out_of_standard_output(site, capsys):
    site.install("noisy", "noisy_module", f"print('at import')\n{IMPORTS}{HALF}".replace("yield", "print('in a hook'); yield"))
    assert {record.status for record in site.host().records if record.name == "noisy_module"} <= {Status.LOADED}
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "at import\nin a hook\n")
