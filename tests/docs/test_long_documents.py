"""Pages that take long, run from top to bottom as test_documents.py runs the others."""

import pytest
from documents import LONG_PAGES, Session, blocks, clone, shell_path, text_of


@pytest.mark.parametrize("page", LONG_PAGES)
def test_page_runs_as_pasted(page, tmp_path, monkeypatch):
    folder = clone(tmp_path)
    monkeypatch.chdir(folder)
    assert Session(page, folder, shell_path(tmp_path), {}).run(blocks(text_of(page))) >= 1
