"""A command that we print works when it is pasted: everywhere in our words, pages and README."""

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import typer
from typer.main import get_command

from parcel_assets.cli import app
from parcel_assets.core.approval import decide_commands
from parcel_assets.core.command_words import Called
from parcel_assets_tests.test_house import MODULES, PACKAGE, name_of, tree_of

README = PACKAGE.parent / "README.md"
USAGE_ERROR: Any = typer.BadParameter.__base__  # typer brings a click of its own, unnamed
COMPOSED = "parcel_assets.core.approval"  # composed of parts: called below
DATA = "/elsewhere/our data"
# up to the quote that closes it, two blanks, a comment, or what ends a sentence
COMMAND = re.compile(
    r"(?<![\w/.-])parcel-assets (?P<words>(?:--|[a-z])(?:(?!  |`| #|[.;,]\s)[^\n])*)"
)


def texts_of(path: Path) -> Iterator[str]:
    """Yield a module's strings as they are printed, an `X` for whatever is filled in."""
    tree = tree_of(path)
    joined = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
    unseen = {part for node in joined for part in ast.walk(node)}
    unseen |= set(ast.walk(tree.body[0]))  # the module's docstring
    for text in joined:
        parts = [one.value if isinstance(one, ast.Constant) else "X" for one in text.values]
        yield "".join(str(one) for one in parts)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in unseen:
            yield node.value


def commands_in(text: str) -> Iterator[str]:
    for found in COMMAND.finditer(text):
        yield found["words"].replace("…", "").replace("...", "").strip().rstrip(".,;:)'")


def fault_of(words: str) -> str | None:
    """Parse a command without running it; return what usage error it would end with, or None."""
    command: Any = get_command(app)
    given, context = shlex.split(words), None
    try:
        while hasattr(command, "resolve_command"):
            context = command.make_context("parcel-assets", given, parent=context)
            rest = [*context._protected_args, *context.args]
            _, command, given = command.resolve_command(context, rest)
        command.make_context(command.name, given, parent=context)
    except USAGE_ERROR as error:
        is_absent = "pem' does not exist" in str(error)  # whoever reads it has a key of their own
        return None if is_absent else f"{type(error).__name__} {error}"
    return None


def printed() -> list[tuple[str, str]]:
    found = {
        (name_of(path), words)
        for path in MODULES
        if name_of(path) != COMPOSED
        for text in texts_of(path)
        for words in commands_in(text)
    }
    blocks = re.findall(r"^```sh\n(.*?)^```", README.read_text(encoding="utf-8"), re.S | re.M)
    joined = "\n".join(blocks).replace("\\\n", "")
    return sorted(found | {("README.md", words) for words in commands_in(joined)})


@pytest.mark.parametrize(("where", "words"), printed())
def test_every_command_that_we_print_can_be_typed(where: str, words: str) -> None:
    assert fault_of(words) is None, f"{where} prints `parcel-assets {words}`"


@pytest.mark.parametrize("approvers", [{}, {"Ada": cast("Any", None)}])
def test_every_command_that_decides_can_be_typed(approvers: dict[str, Any]) -> None:
    for words in decide_commands("r1", approvers).values():
        assert fault_of(words.removeprefix("parcel-assets ")) is None, words


@pytest.mark.parametrize(
    "words",
    ["nonsense", "plan", "plan register", "close r1", "status r1 --foo", "ledger verify --file"],
)
def test_a_command_that_cannot_be_typed_is_found(words: str) -> None:
    assert fault_of(words) is not None


def test_a_command_names_the_data_folder_and_workers_only_where_they_work() -> None:
    called = Called(data=DATA, workers=3, engine="ray:head:6379")
    text = "Run `parcel-assets run r1`, then  parcel-assets status r1"
    assert called.pasteable(text) == (
        f"Run `parcel-assets --data '{DATA}' --workers 3 --engine ray:head:6379 run r1`, "
        f"then  parcel-assets --data '{DATA}' status r1"
    )
    once = called.pasteable(text)
    assert called.pasteable(once) == once
    assert Called().pasteable(text) == text


@pytest.mark.parametrize(
    "text", ["parcel-assets-x run", "/bin/parcel-assets run", "parcel-assets, a program"]
)
def test_what_is_no_command_of_ours_stays(text: str) -> None:
    assert Called(data=DATA).pasteable(text) == text
