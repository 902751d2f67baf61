"""docs/threads.md and its translations say the same: structure, code, figures and links.

What a reader of one language would miss if only another was changed. The wording is for people to judge.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("threads.md", "threads.zh-CN.md", "threads.zh-TW.md")
TRANSLATIONS = PAGES[1:]

# Words of mainland China and of Taiwan for the same things: a page that mixes them was converted, not translated.
TERMS = {
    "thread": ("线程", "執行緒"),
    "process": ("进程", "行程"),
    "default": ("默认", "預設"),
    "variable": ("变量", "變數"),
    "memory": ("内存", "記憶體"),
    "operation": ("运算", "運算"),
    "container": ("容器", "容器"),
    "quota": ("配额", "配額"),
}

FENCE = re.compile(r"\s*```")
HEADING = re.compile(r"(#+) (.*)")
CODE_SPAN = re.compile(r"`[^`]+`")
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]*)\)")
# 64, 1.5, 2.21.0; ASCII digits only, so that a full-width digit is missed on its side and shows as a difference.
FIGURE = re.compile(r"[0-9]+(?:[.,][0-9]+)*")
LIST_ITEM = re.compile(r"\s*(?:[-*]|[0-9]+\.) ")


class Section(NamedTuple):
    """What stands under a heading, the heading's own line included; the one of the page's title comes first."""

    level: int
    title: str
    lines: tuple[str, ...]
    code: tuple[str, ...]

    def spans(self) -> Counter[str]:
        return Counter(" ".join(span.split()) for span in CODE_SPAN.findall("\n".join(self.lines)))

    def figures(self) -> Counter[str]:
        prose = "\n".join(self.lines)
        return Counter(FIGURE.findall(LINK.sub(r"\1", CODE_SPAN.sub(" ", prose))))

    def links(self) -> Counter[str]:
        return Counter(target for _, target in LINK.findall("\n".join(self.lines)))

    def shape(self) -> list[str]:
        """Kinds of the blocks in their order; a paragraph is one however many lines it has."""
        kinds: list[str] = []
        for line in self.lines:
            if not line.strip():
                kinds.append("")
            elif line.startswith("|"):
                kinds.append(f"row of {line.count('|') - 1}")
            elif LIST_ITEM.match(line):
                kinds.append("item")
            elif not kinds or not kinds[-1]:
                kinds.append("paragraph")
        return [kind for kind in kinds if kind]


def read(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


def is_language_line(line: str) -> bool:
    """The line that names the page in other languages, and nothing else does."""
    return bool({target for _, target in LINK.findall(line)} & set(PAGES))


def sections(text: str) -> list[Section]:
    found: list[Section] = []
    level, title, lines, code = 0, "", [], []
    block: list[str] | None = None
    for line in text.splitlines():
        if FENCE.match(line):
            if block is None:
                block = [line.strip()]
            else:
                code.append("\n".join(block))
                block = None
        elif block is not None:
            block.append(line)
        elif heading := HEADING.match(line):
            found.append(Section(level, title, tuple(lines), tuple(code)))
            level, title, lines, code = len(heading[1]), heading[2], [heading[2], ""], []
        elif not is_language_line(line):
            lines.append(line)
    assert block is None, f"a block of code is not closed: {block}"
    found.append(Section(level, title, tuple(lines), tuple(code)))
    assert not any(line.strip() for line in found[0].lines), "text before the title"
    return found[1:]


def differences(english: str, translation: str) -> list[str]:
    """What the two texts do not have in common, section by section; nothing if they say the same."""
    ours, theirs = sections(english), sections(translation)
    levels = [[section.level for section in page] for page in (ours, theirs)]
    if levels[0] != levels[1]:
        return [f"levels of headings: {levels[0]} and {levels[1]}"]
    found = []
    for our, their in zip(ours, theirs):
        for what, one, other in (
            ("code blocks", Counter(our.code), Counter(their.code)),
            ("code spans", our.spans(), their.spans()),
            ("figures", our.figures(), their.figures()),
            ("link targets", our.links(), their.links()),
        ):
            if one != other:
                found.append(f"{what} of '{our.title}': only here {one - other}, only in the translation {other - one}")
        if our.shape() != their.shape():
            found.append(f"shape of '{our.title}': {our.shape()} and {their.shape()}")
    return found


class TestPages:
    """The three pages say the same and name one another."""

    @pytest.mark.parametrize("page", TRANSLATIONS)
    def test_a_translation_says_what_the_english_page_says(self, page):
        assert differences(read("threads.md"), read(page)) == []

    @pytest.mark.parametrize("page", PAGES)
    def test_one_line_below_the_title_links_the_other_two(self, page):
        lines = [line for line in read(page).splitlines() if is_language_line(line)]
        assert len(lines) == 1
        assert sorted(target for _, target in LINK.findall(lines[0])) == sorted(set(PAGES) - {page})
        assert read(page).splitlines().index(lines[0]) == 2

    @pytest.mark.parametrize("page", PAGES)
    def test_files_that_are_linked_exist(self, page):
        targets = [target for _, target in LINK.findall(read(page)) if not target.startswith("https://")]
        assert [target for target in targets if not (DOCS / target).is_file()] == []

    @pytest.mark.parametrize("page", PAGES)
    def test_programs_of_this_repository_that_are_named_exist(self, page):
        named = set(re.findall(r"bench/[\w/]+\.\w+", read(page)))
        assert named
        assert [name for name in sorted(named) if not (DOCS.parent / name).is_file()] == []

    @pytest.mark.parametrize("page", TRANSLATIONS)
    def test_no_heading_or_paragraph_was_left_in_english(self, page):
        for section in sections(read(page)):
            prose = [section.title, *(line for line in section.lines if len(line) > 60)]
            assert [line for line in prose if not re.search("[\u4e00-\u9fff]", line)] == []

    @pytest.mark.parametrize("term", TERMS)
    def test_each_uses_the_words_of_its_readers(self, term):
        mainland, taiwan = TERMS[term]
        assert mainland in read("threads.zh-CN.md")
        assert taiwan in read("threads.zh-TW.md")
        if mainland != taiwan:
            assert taiwan not in read("threads.zh-CN.md")
            assert mainland not in read("threads.zh-TW.md")

    @pytest.mark.parametrize("word", ["線程", "進程", "默認", "變量", "內存", "程序", "軟件", "數據", "緩存", "腳本"])
    def test_no_mainland_word_in_traditional_characters(self, word):
        assert word not in read("threads.zh-TW.md")


class TestDifferences:
    """A page that is changed alone is noticed: each of these edits on the real page is a difference."""

    @pytest.mark.parametrize(
        ("pattern", "replacement"),
        [
            pytest.param(r"\n## [^\n]*\n", "\n", id="heading removed"),
            pytest.param(r"\n## ", "\n### ", id="heading one level lower"),
            pytest.param(r"\Z", "\n## Another?\n", id="heading added"),
            pytest.param(r"private_threadpool_size = 2", "private_threadpool_size = 3", id="code"),
            pytest.param(r"# inter-op 1: hangs; 2: ends", "# inter-op 1: waits; 2: ends", id="comment in code"),
            pytest.param(r"`OMP_NUM_THREADS`", "`OMP_THREADS`", id="code span"),
            pytest.param(r"`OMP_NUM_THREADS`", "OMP_NUM_THREADS", id="code span without its marks"),
            pytest.param(r"\b323\b", "324", id="figure in the text"),
            pytest.param(r"\| 45\.6 \|", "| 45.7 |", id="figure in a table"),
            pytest.param(r"\b323\b", "\uff13\uff12\uff13", id="figure in full-width digits"),
            pytest.param(r"\]\(policy\.md\)", "](grid.md)", id="link"),
            pytest.param(r"issues/38969\)", "issues/38968)", id="link with its text kept"),
            pytest.param(r"\n\| [^\n]*\|(?=\n\n)", "", id="row of a table removed"),
            pytest.param(r"\n- [^\n]*(?:\n  [^\n]*)*", "", id="item of a list removed"),
            pytest.param(r"\Z", "\nAnd more.\n", id="paragraph added"),
        ],
    )
    @pytest.mark.parametrize("page", PAGES)
    def test_a_change_of_one_page_is_a_difference(self, page, pattern, replacement):
        changed, count = re.subn(pattern, replacement, read(page), count=1)
        assert count == 1
        assert differences(read("threads.md"), changed) != []

    def test_wording_and_line_breaks_are_free(self):
        one = "# A\n\nIntra-op is 2 threads\nof `x`.\n\n- one\n  more\n"
        other = "# B\n\n`x` 有 2 个。\n\n- 一\n"
        assert differences(one, other) == []
