"""Each Python block of docs/cookbook-code.md runs with the cookbook's policies, and prints the text below it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from support import Service

import weir

DOCS = Path(__file__).parents[3] / "docs"
RECIPES = 14

if not DOCS.exists():
    pytest.skip("the documentation is in the repository", allow_module_level=True)


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def sections(page: str) -> list[str]:
    return (DOCS / page).read_text().split("\n## ")


def test_each_recipe_prints_what_the_page_says(
    serve: Callable[..., Service], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    service = serve()
    for number, policy in enumerate(blocks("".join(sections("cookbook.md")[1:]), "yaml")):
        (service.directory / f"{number}.yaml").write_text(policy)
    service.stop()
    service.limits.unlink()
    service.limits = service.directory
    service.start()

    introduction, *recipes = sections("cookbook-code.md")
    assert len(recipes) == RECIPES
    with weir.Client(service.address, deadline=20) as client:
        monkeypatch.setattr(weir, "Client", lambda _: client)
        (start,) = blocks(introduction, "python")
        for recipe in recipes:
            (code,), (printed,) = blocks(recipe, "python"), blocks(recipe, "text")
            exec(compile(start + code, recipe.splitlines()[0], "exec"), {})
            assert capsys.readouterr().out == printed, recipe.splitlines()[0]
