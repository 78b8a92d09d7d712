"""Links of the documentation lead somewhere, and its command lines are ones that the program takes."""

import logging
import re
import shlex

import pytest

from lattice_core.cli import compose, entry
from lattice_core.descriptors import Spec
from lattice_core.errors import LatticeError
from tests.docs.pages import DOCS, ROOT, Page, all_pages

PAGES = {page.name: page for page in all_pages()}
TUTORIAL = "docs/tutorial/first-plugin.md"

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_BREAKS = {"|", "||", "&&", ";", "&", "<", ">", "|&", ";;", ">>"}


def anchors(page):
    """The anchors of a page's headings, as GitHub makes them."""
    found = []
    for heading in _HEADING.findall(page.prose):
        slug = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        found.append(f"{slug}-{found.count(slug)}" if slug in found else slug)
    return found


@pytest.mark.parametrize("name", PAGES)
def test_every_relative_link_leads_to_a_file_and_an_anchor_that_exist(name):
    page = PAGES[name]
    for link in _LINK.findall(page.prose):
        if "://" in link:
            continue
        target, _, anchor = link.partition("#")
        path = (page.path.parent / target).resolve() if target else page.path
        assert path.is_file(), f"{name}: {link} leads nowhere"
        if anchor:
            assert anchor in anchors(Page(path)), f"{name}: {link}: {path.name} has no such heading"


def test_every_page_of_the_documentation_is_linked_from_the_readme():
    readme = PAGES["README.md"]
    linked = {(ROOT / link.partition("#")[0]).resolve() for link in _LINK.findall(readme.prose) if "://" not in link}
    assert set(DOCS.rglob("*.md")) <= linked


# ------------------------------------------------------------------------------------------------ command lines


def command_lines(text):
    """Each simple command of a shell block as words, variables before it left out."""
    for line in text.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words = []
        for token in [*lexer, ";"]:
            if token in _BREAKS:
                yield words
                words = []
            else:
                words.append(token)


def without_environment(words):
    """The words from the program on, and the variables before it."""
    position = next((at for at, word in enumerate(words) if not _ASSIGNMENT.match(word) and word != "sudo"), len(words))
    pairs = (word.partition("=") for word in words[:position] if word != "sudo")
    return words[position:], {name: value for name, _, value in pairs}


def lattice_lines():
    for page in PAGES.values():
        if page.name == TUTORIAL:
            continue  # its commands need its plugin; test_tutorial runs them
        for _, language, text in page.blocks():
            starts = "\n".join(re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE))
            for words in command_lines({"sh": text, "ini": starts}.get(language, "")):
                command, environ = without_environment(words)
                if command and command[0].rpartition("/")[2] == "lattice":
                    yield pytest.param(command[1:], environ, id=f"{page.path.stem}: {shlex.join(command)}")


LINES = list(lattice_lines())


@pytest.fixture
def parsed(monkeypatch, tmp_path):
    """Runs the program up to where it would compose an engine or call a command; fails for what it does not take."""

    def decide(session, command, flags):
        session.check()
        session.resolve(flags)
        return 0

    monkeypatch.setattr(compose, "run_engine", decide)
    monkeypatch.setattr(Spec, "resolve", lambda _spec: lambda *_arguments: 0)
    monkeypatch.chdir(tmp_path)
    # The program sets its logger up for a process of its own.
    logger = logging.getLogger("lattice")
    monkeypatch.setattr(logger, "propagate", logger.propagate)
    monkeypatch.setattr(logger, "handlers", list(logger.handlers))
    monkeypatch.setattr(logger, "level", logger.level)

    def run(arguments, **environ):
        try:
            return entry.run(arguments, {"HOME": str(tmp_path), **environ})
        except LatticeError as error:
            pytest.fail(f"lattice {shlex.join(arguments)}: {error.message}")

    return run


@pytest.mark.parametrize(("arguments", "environ"), LINES)
def test_every_command_line_is_one_that_the_program_takes(arguments, environ, parsed):
    assert parsed(arguments, **environ) == 0


def test_the_example_of_a_configuration_file_is_one_that_the_program_takes(parsed, tmp_path):
    [example] = [text for _, language, text in PAGES["docs/how-to/configure.md"].blocks() if language == "toml"]
    (tmp_path / "lattice.toml").write_text(example)
    assert parsed(["serve"]) == 0


def test_readme_and_guides_show_command_lines():
    shown = {case.id.partition(":")[0] for case in LINES}
    assert shown >= {"README", "serve", "models", "cpu-speed", "plugins", "stdio"}


@pytest.mark.parametrize("wrong", [["serve", "--prot", "1"], ["pull", "x", "--everything"], ["run", "--max-tokens", "many"]])
def test_a_wrong_command_line_would_be_noticed(wrong, parsed):
    with pytest.raises(pytest.fail.Exception):
        parsed(wrong)
