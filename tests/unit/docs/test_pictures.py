"""Pictures in pages are those that a script makes from real runs: small, with a description, and without anything from the network."""

from __future__ import annotations

import re

from scripts.pictures import FOLDER, LARGEST_BYTES, PICTURES
from tests.unit.docs.markdown import ROOT, pages

PAGES = [page for page in pages() if not page.name.startswith("docs/benchmarks/")]
"""Charts of benchmarks are made by the scripts of their pages."""
_PICTURE = re.compile(r"!\[([^\]]*)\]\(([^()\s]+)\)")


def test_the_script_the_folder_and_the_pages_have_the_same_pictures() -> None:
    shown = {((ROOT / page.name).parent / target).resolve() for page in PAGES for _, target in _PICTURE.findall(page.prose)}
    made = {FOLDER / picture.file for picture in PICTURES}
    assert shown == made == set(FOLDER.iterdir())


def test_a_page_says_by_which_command_its_picture_was_made() -> None:
    commands = {picture.file: picture.command for picture in PICTURES}
    for page in PAGES:
        for described, target in _PICTURE.findall(page.prose):
            assert described, f"{page.name}: {target} has no description"
            assert commands[target.rpartition("/")[2]] in page.text, f"{page.name}: {target}"


def test_pictures_are_small_and_ask_for_nothing() -> None:
    for path in FOLDER.iterdir():
        assert path.stat().st_size <= LARGEST_BYTES, path.name
        if path.suffix == ".svg":
            assert not re.search(r"url\((?!#)|href|<script|@import", path.read_text()), path.name
