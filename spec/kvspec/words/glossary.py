"""``docs/glossary.md``, from the terms that ``kvspec explain`` says: ``python -m kvspec.words.glossary > docs/glossary.md``."""

from __future__ import annotations

from collections.abc import Iterator

from kvspec.words.terms import GLOSSARY, OTHER_WORDS

_HEAD = """\
# Glossary

The words of the rules, the language and the reports, each with the rules that say more; `kvspec explain WORD` says the same in a
terminal. Verbs, expectations and keys of a file are in [scenario-language.md](scenario-language.md), and `kvspec explain words`
lists all.
"""
_OTHER = """\
## As others say

What other managers call by another name. `kvspec check` and `kvspec explain` know these words, and say which is meant.

| you may say | here it is |
| --- | --- |
"""


def page() -> str:
    """The page as Markdown. It is made from `GLOSSARY` and `OTHER_WORDS`, and a test holds it to them."""
    return "".join([_HEAD, *_sections(), "\n", _OTHER, *_others()])


def _sections() -> Iterator[str]:
    for title, terms in GLOSSARY.items():
        yield f"\n## {title}\n\n| word | what it means here | rules |\n| --- | --- | --- |\n"
        for name, term in terms.items():
            yield f"| {name} | {term.text} | {', '.join(term.rules)} |\n"


def _others() -> Iterator[str]:
    by_word: dict[str, list[str]] = {}
    for other, word in OTHER_WORDS.items():
        by_word.setdefault(word, []).append(other)
    for word, others in sorted(by_word.items()):
        yield f"| {', '.join(others)} | `{word}` |\n"


if __name__ == "__main__":
    print(page(), end="")
