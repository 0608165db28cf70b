from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest
import zstandard

from shards.errors import UserError
from stages.url.lists import digest_files, list_files


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.fixture
def ut1(tmp_path: Path) -> Path:
    root = write(
        tmp_path / "ut1",
        {
            "blacklists/global_usage": "# NAME : explained\nNAME:\tpress\nDEFAULT_TYPE: white\nNAME: games\n"
            "DEFAULT_TYPE: black\n",
            "blacklists/games/domains": "games.example\n",
            "blacklists/games/urls": "play.example/games\n",
            "blacklists/games/usage": "# comment\nblack\nwhite\n",
            "blacklists/bank/domains": "bank.example\n",
            "blacklists/bank/usage": "white\nblack\n",
            "blacklists/press/domains": "press.example\n",
            "blacklists/press/usage": "black\npress\n",
            "blacklists/exceptions/domains": "no-usage.example\n",
            "blacklists/empty/usage": "black\n",
        },
    )
    os.symlink("games", root / "blacklists" / "jeux")
    return root


def categories(lists: tuple[Path, ...], chosen: tuple[str, ...] = ()) -> list[tuple[str, str]]:
    return [(file.category, file.kind) for file in list_files(tuple(map(str, lists)), chosen)]


def test_only_what_is_declared_black_is_blocked_and_links_are_the_same_category(ut1: Path) -> None:
    assert categories((ut1,)) == [("games", "domains"), ("games", "urls")]
    assert categories((ut1 / "blacklists",)) == categories((ut1,)) == categories((ut1, ut1))


def test_named_categories_are_blocked_whatever_they_are_declared(ut1: Path) -> None:
    assert categories((ut1,), ("bank", "exceptions")) == [("bank", "domains"), ("exceptions", "domains")]
    assert categories((ut1,), ("jeux", "games")) == [("games", "domains"), ("games", "urls")]


def test_plain_files_stand_beside_folders_and_know_no_categories(ut1: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("x.example\n")
    assert categories((tmp_path / "mine.txt", ut1), ("bank",)) == [("mine", "mixed"), ("bank", "domains")]


def test_what_decides_is_part_of_the_digest(ut1: Path) -> None:
    names = {str(Path(path).relative_to(ut1 / "blacklists")) for path in digest_files((str(ut1),), ())}
    assert {"games/domains", "games/urls", "games/usage", "press/usage", "global_usage"} <= names
    assert "bank/domains" not in names
    assert {Path(path).name for path in digest_files((str(ut1),), ("bank",))} == {"domains"}


def test_a_link_out_of_the_folder_is_not_followed(ut1: Path, tmp_path: Path) -> None:
    outside = write(tmp_path / "outside", {"domains": "outside.example\n", "usage": "black\n"})
    os.symlink(outside, ut1 / "blacklists" / "leak")
    assert categories((ut1,)) == [("games", "domains"), ("games", "urls")]
    with pytest.raises(UserError, match="'leak' is a link out of"):
        categories((ut1,), ("leak",))
    (ut1 / "blacklists" / "games" / "urls").unlink()
    os.symlink(outside / "domains", ut1 / "blacklists" / "games" / "urls")
    with pytest.raises(UserError, match="urls is a link out of"):
        categories((ut1,))


def test_mistakes_name_what_is_there(ut1: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no blacklist at .*absent"):
        categories((tmp_path / "absent",))
    with pytest.raises(UserError, match=r"no list has a category 'gams'.*Did you mean 'games'\?"):
        categories((ut1,), ("gams",))
    with pytest.raises(UserError, match=r"'empty' of .* holds neither"):
        categories((ut1,), ("empty",))
    with pytest.raises(UserError, match=r"no category in .* is declared black.*Name the categories"):
        categories((write(tmp_path / "white", {"bank/domains": "b.example\n", "bank/usage": "white\n"}),))


@pytest.mark.shared_data
def test_the_real_folder(shared_data: Path, tmp_path: Path) -> None:
    name = shared_data / "blacklist" / "ut1_small_categories.tar.zst"
    with zstandard.open(name, "rb") as packed, tarfile.open(fileobj=packed, mode="r|") as tar:
        tar.extractall(tmp_path, filter="data")
    found = {category for category, _ in categories((tmp_path,))}
    assert {"publicite", "agressif", "dating", "malware", "warez"} - found == {"malware"}  # it has no list here
    assert not found & {"liste_bu", "liste_blanche", "bank", "press", "cleaning", "ads", "exceptions_liste_bu"}
    assert categories((tmp_path,), ("ads",)) == [("publicite", "domains"), ("publicite", "urls")]
