"""The Python code of the README, of CONTRIBUTING and of each page under docs/ runs, from the first block to the last.

A page is one program: its blocks share their names. `await` may stand outside of functions. The printed addresses of
servers are replaced by those of empty databases.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from windlass import Windlass

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SERVERS = {
    "postgresql://localhost/shop": "fresh_postgres_url",
    "mongodb://localhost/shop": "fresh_mongodb_url",
}
SECRETS = "READER_TOKEN", "ADMIN_TOKEN", "DEPLOY_SECRET"  # that pages read from the environment


def blocks_of(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)


# The tutorial has a test that also runs its commands.
PAGES = [page for page in (*ROOT.glob("*.md"), *sorted(DOCS.rglob("*.md"))) if blocks_of(page)]
PAGES.remove(DOCS / "tutorial.md")


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_the_code_of_the_page_runs(
    page: Path, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in SECRETS:
        monkeypatch.setenv(name, f"{name.lower()}-of-the-test")
    urls = {url: request.getfixturevalue(name) for url, name in SERVERS.items() if url in page.read_text()}
    names: dict[str, Any] = {"__name__": "__main__"}
    try:
        for block in blocks_of(page):
            for printed, url in urls.items():
                block = block.replace(printed, url)
            run(block, page.name, names)
    finally:
        for value in list(names.values()):
            if isinstance(value, Windlass):
                value.close()


def run(block: str, name: str, names: dict[str, Any]) -> None:
    code = compile(block, name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    if code.co_flags & inspect.CO_COROUTINE:
        asyncio.run(eval(code, names))
    else:
        exec(code, names)
